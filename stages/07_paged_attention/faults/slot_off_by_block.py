"""A token's slot is counted from the request's first block, as if the others came right after it.

On a fresh server they do, and everything is right. Once the pool has been in use for a while they do not, and a request
writes into blocks that belong to others.

A user sees: perfect answers in every test, and after an hour of traffic answers that drift into somebody else's.

Seen in the wild: why vLLM keeps a slot mapping beside the block table, and a bound check in debug builds. The figure
that this stage's numbers come from had two slots that could not be right, 171 for position 208 and 300 for 96.
"""

from ..parts import Parts
from ..super_sequence import SuperSequence

TEST = "tests/stage_07/test_super_sequence.py::test_a_slot_is_in_the_block_that_the_table_has_for_its_position"
MESSAGE = "lies in a block that the table does not have for it"


class CountsOn(SuperSequence):
    @staticmethod
    def slot(block_ids: list[int], position: int, block_size: int) -> int:
        return block_ids[0] * block_size + position


class LooksOneAhead(SuperSequence):
    @staticmethod
    def slot(block_ids: list[int], position: int, block_size: int) -> int:
        place = min(-(-position // block_size), len(block_ids) - 1)
        return block_ids[place] * block_size + position % block_size


PARTS = Parts(super_sequence=f"{__name__}:CountsOn")


class RoundUp:
    """Tempting: look the block up, rounding up as when counting blocks. A position is no count."""

    PARTS = Parts(super_sequence=f"{__name__}:LooksOneAhead")
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"round_up": RoundUp}
