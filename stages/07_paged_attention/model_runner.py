"""07.6 The model runner: one step's rows become one super sequence, one forward pass, and a token for each row.

Owns the KV cache and the model, and knows nothing of requests beyond the rows of this step. Logits are computed only
where a token is to be sampled.
"""

from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch

from .attention import NAME, Attention, Paged
from .block_pool import NOBODY
from .sampler import Sampler
from .step import Result, Row
from .super_sequence import SuperSequence
from .trace import Tracer

PARTS = ("metadata", "forward", "sample")
"""of a step. On a GPU the forward pass is only launched, and what waits for it is the sampling"""


@dataclass
class Inputs:
    """What one forward pass is called with."""

    token_ids: torch.Tensor
    """[T] int64"""
    positions: torch.Tensor
    """[T] int64"""
    keep: torch.Tensor
    """int64: places in the super sequence whose logits are wanted"""
    paged: Paged


class ModelRunner:
    """Runs a Hugging Face causal LM over a pool of `num_blocks` blocks, and block 0 before them, which is nobody's."""

    def __init__(
        self,
        model: Any,
        num_blocks: int,
        block_size: int,
        attention: Attention,
        sampler: Sampler,
        super_sequence: type[SuperSequence] = SuperSequence,
        trace: Tracer | None = None,
    ) -> None:
        self.model = model
        self.device = model.device
        self.block_size = block_size
        self.attention = attention
        self.sampler = sampler
        self.super_sequence = super_sequence
        self.trace = trace or Tracer()
        self.graphs: Any = None  # a DecodeGraphs, once captured
        model.set_attn_implementation(NAME)
        layers, *shape = cache_shape(model.config, num_blocks + 1, block_size)
        self.caches = [torch.zeros(shape, dtype=model.dtype, device=self.device) for _ in range(layers)]

    @torch.inference_mode()
    def execute(self, rows: list[Row]) -> Result:
        """One step for all rows, in one forward pass."""
        times = [perf_counter()]
        pack = self.super_sequence.pack(rows, self.block_size)
        size = self.graphs.size_for(pack) if self.graphs else None
        inputs = None if size else self.inputs(pack)
        times.append(perf_counter())
        request_ids = [row.request_id for row in pack.rows]
        with self.trace.span("forward", request_ids=request_ids, tokens=len(pack.token_ids), graph=size) as seen:
            seen |= {"query_starts": pack.query_starts, "positions": pack.positions, "slots": pack.slots}
            logits = self.forward(inputs) if inputs else self.graphs.replay(pack, size)
        times.append(perf_counter())
        sampling = [row for row in pack.rows if row.samples]
        sampled = dict(zip((row.request_id for row in sampling), self.sampler(logits, sampling), strict=True))
        times.append(perf_counter())
        seconds = {part: end - begin for part, (begin, end) in zip(PARTS, pairwise(times), strict=True)}
        return Result([sampled.get(row.request_id) for row in rows], size or len(pack.token_ids), seconds)

    def inputs(self, pack: SuperSequence) -> Inputs:
        """The super sequence as tensors on the device."""
        widest = max(len(table) for table in pack.block_tables)
        tables = [[*table, *[NOBODY] * (widest - len(table))] for table in pack.block_tables]
        starts, first = pack.query_starts, pack.num_decodes
        lengths = [end - start for start, end in pairwise(starts)]
        paged = Paged(
            attention=self.attention,
            caches=self.caches,
            slots=self.tensor(pack.slots),
            query_starts=self.tensor(starts, torch.int32),
            seq_lens=self.tensor(pack.seq_lens, torch.int32),
            block_tables=self.tensor(tables, torch.int32),
            num_decodes=first,
            prefills=list(zip(starts[first:-1], lengths[first:], pack.seq_lens[first:], strict=True)),
            max_query_len=max(lengths),
            max_seq_len=max(pack.seq_lens),
        )
        return Inputs(self.tensor(pack.token_ids), self.tensor(pack.positions), self.tensor(pack.last), paged)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Logits where they are wanted, [keep, vocabulary]. The step's knowledge rides along as `paged`."""
        output = self.model(
            input_ids=inputs.token_ids[None],
            position_ids=inputs.positions[None],
            use_cache=False,
            logits_to_keep=inputs.keep,
            paged=inputs.paged,
        )
        return output.logits[0]

    def tensor(self, values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Numbers, on the device."""
        return torch.tensor(values, dtype=dtype).to(self.device, non_blocking=True)


def cache_shape(config: Any, num_blocks: int, block_size: int) -> tuple[int, int, int, int, int, int]:
    """Layers, and the shape of one layer's cache: 2, blocks, block_size, KV heads, head size."""
    text = config.get_text_config()
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return text.num_hidden_layers, 2, num_blocks, block_size, getattr(text, "num_key_value_heads", None) or heads, size
