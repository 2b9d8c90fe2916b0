"""07.8 CUDA graphs for decode: hundreds of kernel launches recorded once and replayed with one.

A graph replays on fixed shapes and fixed memory, so there is one for each batch size (captured largest first, over one
memory pool), inputs are copied into buffers that never move, and a batch is rounded up with rows that are nobody's.
What such a row writes must go to a block that is nobody's either: slot -1 would be the *last* slot of the pool (vLLM
issue 13418), and a table column left from a larger batch would point into someone's block. Everything but `record`
works without a GPU, and is tested so.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace

import torch

from .block_pool import NOBODY
from .messages import SamplingParams
from .model_runner import Inputs, ModelRunner
from .step import Row
from .super_sequence import SuperSequence

PADDING = Row("", [0], 0, [NOBODY], False, 0, SamplingParams(max_tokens=1))
"""a row that is nobody's: one token, in block 0"""

WARM_UPS = 2
"""eager passes before a capture, so that libraries have set themselves up"""


def graph_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes to capture: 1, 2, 4, then every eighth, and the largest."""
    return sorted({size for size in (1, 2, 4, *range(8, max_num_seqs, 8), max_num_seqs) if size <= max_num_seqs})


class DecodeGraphs:
    """The recorded decode steps of one model runner, for up to `max_num_seqs` rows of up to `max_blocks` blocks."""

    def __init__(self, runner: ModelRunner, max_num_seqs: int, max_blocks: int) -> None:
        self.runner = runner
        self.sizes = graph_sizes(max_num_seqs)
        self.replays: dict[int, Callable[[], torch.Tensor]] = {}
        self.memory = None
        widest = replace(PADDING, block_ids=[NOBODY] * max_blocks)
        self.buffers = runner.inputs(runner.super_sequence.pack([widest] * max_num_seqs, runner.block_size))

    @torch.inference_mode()
    def capture(self) -> None:
        """Record every size, the largest first. A model that cannot be recorded runs eagerly, with a warning."""
        try:
            for size in reversed(self.sizes):
                self.replays[size] = self.record(self.first(size))
        except RuntimeError as exc:
            self.replays.clear()
            warnings.warn(f"no CUDA graphs, every step runs eagerly: {exc}", stacklevel=2)

    def record(self, inputs: Inputs) -> Callable[[], torch.Tensor]:
        """Capture one size; calling what is returned replays it on whatever the buffers hold then."""
        for _ in range(WARM_UPS):
            self.runner.forward(inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.memory):
            logits = self.runner.forward(inputs)
        self.memory = self.memory or graph.pool()

        def replay() -> torch.Tensor:
            graph.replay()
            return logits

        return replay

    def size_for(self, pack: SuperSequence) -> int | None:
        """The smallest recorded size that holds this step; None if it is not all decodes, or too large."""
        if pack.num_decodes < len(pack.rows):
            return None
        return next((size for size in self.sizes if size in self.replays and size >= len(pack.rows)), None)

    def replay(self, pack: SuperSequence, size: int) -> torch.Tensor:
        """Logits of the rows that sample, [rows, vocabulary]: as `ModelRunner.forward` would have computed them."""
        self.fill(self.pad(pack, size))
        return self.replays[size]()[pack.last]

    def pad(self, pack: SuperSequence, size: int) -> SuperSequence:
        """The step with rows that are nobody's, up to `size`."""
        return pack.pack([*pack.rows, *[PADDING] * (size - len(pack.rows))], self.runner.block_size)

    def fill(self, pack: SuperSequence) -> None:
        """Copy a padded step into the buffers, and clear the table columns that the last one left."""
        step, buffers = self.runner.inputs(pack), self.first(len(pack.rows))
        buffers.token_ids.copy_(step.token_ids)
        buffers.positions.copy_(step.positions)
        buffers.paged.slots.copy_(step.paged.slots)
        buffers.paged.seq_lens.copy_(step.paged.seq_lens)
        buffers.paged.block_tables.fill_(NOBODY)
        buffers.paged.block_tables[:, : step.paged.block_tables.shape[1]].copy_(step.paged.block_tables)

    def first(self, size: int) -> Inputs:
        """The first `size` rows of the buffers, as a forward pass takes them: views of memory that never moves."""
        buffers, paged = self.buffers, self.buffers.paged
        widest = paged.block_tables.shape[1] * self.runner.block_size
        views = {"slots": paged.slots[:size], "query_starts": paged.query_starts[: size + 1]}
        views |= {"seq_lens": paged.seq_lens[:size], "block_tables": paged.block_tables[:size]}
        rows = replace(paged, num_decodes=size, max_seq_len=widest, **views)
        return Inputs(buffers.token_ids[:size], buffers.positions[:size], paged.query_starts[:size].long(), rows)
