"""The padding rows of a captured graph write into the last slot of the pool.

Rows that are nobody's get slot -1, meant as "none". As an index into a tensor, -1 is the last element, and the last
slot belongs to whoever has the last block.

A user sees: now and then, on a full server with a GPU, one long answer that goes wrong in the middle; never with
`--enforce-eager`, never alone.

Seen in the wild: vLLM issue 13418, padded rows in a graph's replay; vLLM's kernels skip negative slots since.
"""

from dataclasses import replace

from ..cuda_graphs import DecodeGraphs
from ..parts import Parts
from ..super_sequence import SuperSequence

TEST = "tests/stage_07/test_cuda_graphs.py::test_padding_rows_touch_no_block_of_the_pool"
MESSAGE = "padding rows wrote into the pool"


class MinusOne(DecodeGraphs):
    def pad(self, pack: SuperSequence, size: int) -> SuperSequence:
        padded = super().pad(pack, size)
        return replace(padded, slots=[*pack.slots, *[-1] * (size - len(pack.rows))])


class TakesTheNextSlot(DecodeGraphs):
    def pad(self, pack: SuperSequence, size: int) -> SuperSequence:
        padded = super().pad(pack, size)
        free = pack.slots[-1] + 1
        return replace(padded, slots=[*pack.slots, *[free] * (size - len(pack.rows))])


PARTS = Parts(cuda_graphs=f"{__name__}:MinusOne")


class UseTheNextSlot:
    """Tempting: a slot that is not in use yet, right after the last row's. At a block's end it is somebody else's."""

    PARTS = Parts(cuda_graphs=f"{__name__}:TakesTheNextSlot")
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"use_the_next_slot": UseTheNextSlot}
