"""07.7 Paged attention, readable: keys and values are written to slots, and found again through block tables.

transformers lets a model's attention be replaced by name (`AttentionInterface`), so any causal LM comes in unmodified.
What a step knows travels through the model as one keyword argument, `paged`. One tensor a layer is all there is of the
cache: [2, blocks, block_size, KV heads, head size], keys in [0], values in [1].
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers import AttentionInterface

NAME = "paged"
"""what the attention is called in `model.set_attn_implementation`"""


class Attention(Protocol):
    """An attention backend. T tokens, R rows; the first `num_decodes` rows have one token each."""

    graphs: bool
    """whether a step of decodes alone may be captured: no shape and no branch depends on what tensors hold"""

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
        """Put `key` and `value` [T, KV heads, D] into the cache of one layer, at `slots` [T]."""
        ...

    def attend(self, query: torch.Tensor, cache: torch.Tensor, paged: "Paged", scaling: float) -> torch.Tensor:
        """Each token of `query` [T, heads, D] over its own request up to itself: [T, heads, D]."""
        ...


@dataclass
class Paged:
    """What attention needs to know of a step; one for all layers."""

    attention: Attention
    caches: list[torch.Tensor]
    """one a layer: [2, blocks, block_size, KV heads, D]"""
    slots: torch.Tensor
    """[T] int64: where each token's key and value are written"""
    query_starts: torch.Tensor
    """[R + 1] int32: where each row begins in the super sequence"""
    seq_lens: torch.Tensor
    """[R] int32: tokens that each row's last token attends to, itself included"""
    block_tables: torch.Tensor
    """[R, widest] int32: what lies beyond a row's own blocks is never attended to"""
    num_decodes: int
    """rows of one token; they come first"""
    prefills: list[tuple[int, int, int]]
    """for each other row: where it begins, how many tokens it has, how many its last one attends to"""
    max_query_len: int
    max_seq_len: int


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    *,
    paged: Paged,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What a model's layer calls: query [1, heads, T, D], key and value [1, KV heads, T, D] -> [1, T, heads, D].

    The scaling is the one given: OPT has scaled its query already and passes 1. Raises `NotImplementedError` for
    variants of attention that would change the answer and are not here.
    """
    for option in ("sliding_window", "softcap", "s_aux"):
        if options.get(option) is not None:
            raise NotImplementedError(f"this model's attention wants {option}, which is not supported")
    return attend(paged, module.layer_idx, query, key, value, scaling), None


def attend(
    paged: Paged, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """The same, knowing which layer it is: write what is new into its cache, then attend to what is there."""
    q, k, v = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    cache = paged.caches[layer]
    paged.attention.write(k, v, cache, paged.slots)
    given = q.shape[-1] ** -0.5 if scaling is None else scaling
    return paged.attention.attend(q, cache, paged, given).unsqueeze(0)


AttentionInterface.register(NAME, paged_attention)


class TorchAttention:
    """In plain PyTorch: gather the blocks of a row, then attend. Grouped heads (GQA) show in the shapes alone."""

    graphs = True

    def write(self, key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
        """One line a tensor: blocks laid end to end are slots."""
        cache[0].flatten(0, 1)[slots] = key
        cache[1].flatten(0, 1)[slots] = value

    def attend(self, query: torch.Tensor, cache: torch.Tensor, paged: Paged, scaling: float) -> torch.Tensor:
        """All decodes at once, then each prompt by itself."""
        output, decodes = torch.empty_like(query), paged.num_decodes
        if decodes:
            tables, seq_lens = paged.block_tables[:decodes], paged.seq_lens[:decodes]
            output[:decodes] = self.decode(query[:decodes], cache, tables, seq_lens, scaling)
        for table, (start, length, seq_len) in zip(paged.block_tables[decodes:], paged.prefills, strict=True):
            rows = slice(start, start + length)
            output[rows] = self.prefill(query[rows], cache, table, seq_len, scaling)
        return output

    def decode(
        self, query: torch.Tensor, cache: torch.Tensor, tables: torch.Tensor, seq_lens: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """One token a row: query [R, heads, D], tables [R, widest] -> [R, heads, D]."""
        known = cache[:, tables].flatten(2, 3)  # [2, R, widest * block_size, KV heads, D]
        mine = torch.arange(known.shape[2], device=query.device) < seq_lens[:, None]
        known = known.masked_fill(~mine[None, :, :, None, None], 0)  # what is masked may be NaN, which would spread
        keys, values = known.transpose(2, 3)
        grouped = query.shape[1] != keys.shape[1]
        mask = mine[:, None, None, :]
        out = sdpa(query.unsqueeze(2), keys, values, attn_mask=mask, scale=scaling, enable_gqa=grouped)
        return out.squeeze(2)

    def prefill(
        self, query: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, seq_len: int, scaling: float
    ) -> torch.Tensor:
        """The last `length` of a row's `seq_len` tokens: query [length, heads, D], table [widest] -> as query."""
        length, blocks = query.shape[0], -(-seq_len // cache.shape[2])
        keys, values = cache[:, table[:blocks]].flatten(1, 2)[:, :seq_len].transpose(1, 2)  # [KV heads, seq_len, D]
        causal = torch.ones(length, seq_len, dtype=torch.bool, device=query.device).tril(seq_len - length)
        grouped = query.shape[1] != keys.shape[0]
        q, k, v = query.transpose(0, 1)[None], keys[None], values[None]
        return sdpa(q, k, v, attn_mask=causal, scale=scaling, enable_gqa=grouped)[0].transpose(0, 1)
