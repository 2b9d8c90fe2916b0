"""07.8 CUDA graphs for decode: hundreds of kernel launches recorded once and replayed with one.

A graph replays on fixed shapes and fixed memory, so there is one for each batch size (captured largest first, over one
memory pool), inputs are copied into buffers that never move, and a batch is rounded up with rows that are nobody's.
What such a row writes must go to a block that is nobody's either: slot -1 would be the *last* slot of the pool (vLLM
issue 13418), and a table column left from a larger batch would point into someone's block. Everything but `record`
works without a GPU, and is tested so.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from .attention import Paged
from .block_pool import NOBODY
from .model_runner import Inputs, ModelRunner
from .super_sequence import SuperSequence

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
        largest, device = self.sizes[-1], runner.device
        self.token_ids = torch.zeros(largest, dtype=torch.int64, device=device)
        self.positions = torch.zeros(largest, dtype=torch.int64, device=device)
        self.slots = torch.zeros(largest, dtype=torch.int64, device=device)
        self.seq_lens = torch.ones(largest, dtype=torch.int32, device=device)
        self.tables = torch.zeros((largest, max_blocks), dtype=torch.int32, device=device)

    @torch.inference_mode()
    def capture(self) -> None:
        """Record every size, the largest first."""
        for size in reversed(self.sizes):
            self.replays[size] = self.record(self.buffers(size))

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
        """The step with rows that are nobody's, up to `size`: one token each, in block 0."""
        more = size - len(pack.rows)
        nobody = replace(pack.rows[0], request_id="", block_ids=[NOBODY], position=0, samples=False)
        return replace(
            pack,
            rows=[*pack.rows, *[nobody] * more],
            token_ids=[*pack.token_ids, *[0] * more],
            positions=[*pack.positions, *[0] * more],
            slots=[*pack.slots, *[NOBODY * self.runner.block_size] * more],
            query_starts=list(range(size + 1)),
            seq_lens=[*pack.seq_lens, *[1] * more],
            block_tables=[*pack.block_tables, *[[NOBODY]] * more],
            num_decodes=size,
        )

    def fill(self, pack: SuperSequence) -> None:
        """Copy a padded step into the buffers, and clear the table columns that the last one left."""
        size, widest = len(pack.rows), self.tables.shape[1]
        tables = [[*table, *[NOBODY] * (widest - len(table))] for table in pack.block_tables]
        for buffer, values in (
            (self.token_ids, pack.token_ids),
            (self.positions, pack.positions),
            (self.slots, pack.slots),
            (self.seq_lens, pack.seq_lens),
            (self.tables, tables),
        ):
            buffer[:size].copy_(torch.tensor(values, dtype=buffer.dtype))

    def buffers(self, size: int) -> Inputs:
        """The first `size` rows of the buffers, as a forward pass takes them."""
        starts = torch.arange(size + 1, dtype=torch.int32, device=self.runner.device)
        paged = Paged(
            attention=self.runner.attention,
            caches=self.runner.caches,
            slots=self.slots[:size],
            query_starts=starts,
            seq_lens=self.seq_lens[:size],
            block_tables=self.tables[:size],
            num_decodes=size,
            prefills=[],
            max_query_len=1,
            max_seq_len=self.tables.shape[1] * self.runner.block_size,
        )
        return Inputs(self.token_ids[:size], self.positions[:size], starts[:size].long(), paged)
