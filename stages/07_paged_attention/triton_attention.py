"""07.7 Paged attention in Triton: keys and values are read where they lie, and scores never leave the chip.

One kernel for prompts and decodes, after two ideas: softmax as a running maximum and a running sum, with queries as
the outer loop (FlashAttention-2), and all query heads that share a KV head in one tile of the same kernel (vLLM's
unified attention). A few decodes alone would leave most of a GPU idle, so their keys are split among programs, and a
second kernel combines what those found. Metadata are the PyTorch backend's. Imported only where it was chosen.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from .attention import Paged, TorchAttention

PROGRAMS = 256
"""how many there should be to keep a large GPU busy: about two for each of its multiprocessors"""
MIN_KEYS = 128
"""a split has no fewer, or combining would take longer than it saves"""
MAX_SPLITS = 16
TILE_BYTES = 1 << 14
"""of keys, and as many of values: two tiles of each fit into any GPU's shared memory beside the queries"""


class TritonAttention:
    """Attention on a GPU. `splits` fixes, for decodes, among how many programs (a power of two) keys are split."""

    graphs = True  # grids and splits depend on shapes and on `Paged`'s plain numbers alone

    def __init__(self, splits: int | None = None) -> None:
        self.splits = splits

    write = TorchAttention.write

    def attend(self, query: torch.Tensor, cache: torch.Tensor, paged: Paged, scaling: float) -> torch.Tensor:
        """Each token of `query` [T, heads, D] over its own request up to itself: [T, heads, D]."""
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        decodes, prefills = paged.num_decodes, len(paged.prefills)
        with torch.cuda.device_of(query):  # Triton launches on the current device
            if decodes:
                splits = self.splits or splits_for(decodes * cache.shape[3], paged.max_seq_len)
                launch(output, query, cache, paged, scaling, rows=range(decodes), longest=1, splits=splits)
            if prefills:
                rows = range(decodes, decodes + prefills)
                launch(output, query, cache, paged, scaling, rows, paged.max_query_len, splits=1)
        return output


def splits_for(programs: int, max_seq_len: int) -> int:
    """How many times to split keys of up to `max_seq_len` tokens, when there are `programs` without: a power of two."""
    most = min(PROGRAMS // programs, max_seq_len // MIN_KEYS, MAX_SPLITS)
    return 1 << max(most, 1).bit_length() - 1


def launch(
    output: torch.Tensor,
    query: torch.Tensor,
    cache: torch.Tensor,
    paged: Paged,
    scaling: float,
    rows: range,
    longest: int,
    splits: int,
) -> None:
    """Fill `output` [T, heads, D] where the tokens of `rows` are, which have at most `longest` each; one if split."""
    heads, size = query.shape[1:]
    block_size, kv_heads = cache.shape[2:4]
    group, block_d = heads // kv_heads, max(16, triton.next_power_of_2(size))
    block_m = max(16 if longest == 1 else 64, triton.next_power_of_2(group))  # tl.dot wants at least 16
    block_n = min(max(TILE_BYTES // (block_d * cache.element_size()), 16), 64)
    found, maxima, sums = output, output, output
    if splits > 1:
        shape, options = (len(rows), heads, splits), {"dtype": torch.float32, "device": query.device}
        found = torch.empty((*shape, size), **options)
        maxima, sums = torch.empty(shape, **options), torch.empty(shape, **options)
    attend: Any = attend_kernel[-(-longest // (block_m // group)) * splits, len(rows), kv_heads]
    attend(
        found, maxima, sums, query, cache, paged.block_tables, paged.query_starts, paged.seq_lens,
        rows.start, paged.block_tables.stride(0), scaling, *query.stride(), *cache.stride(),
        GROUP=group, D=size, BLOCK_SIZE=block_size, SPLITS=splits, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_D=block_d,
        num_stages=2,
    )  # fmt: skip
    if splits > 1:
        combine: Any = combine_kernel[(len(rows) * heads,)]
        combine(output, found, maxima, sums, D=size, SPLITS=splits, BLOCK_D=block_d)


@triton.jit(do_not_specialize=["first_row", "table_stride"])
def attend_kernel(
    output, maxima, sums, query, cache, tables, query_starts, seq_lens,
    first_row, table_stride, scaling, q_token, q_head, q_dim, kv, kv_block, kv_slot, kv_head_stride, kv_dim,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_SIZE: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One tile of one row's tokens, with the `GROUP` heads of one KV head, over one split of their keys.

    Grid: (tiles x splits, rows, KV heads). A tile has BLOCK_M lanes, each a token and a head: BLOCK_M // GROUP tokens.
    Writes `output` [T, heads, D] or, of splits, `output` [T, heads, SPLITS, D] (not yet divided by their sums), with
    `maxima` and `sums` [T, heads, SPLITS]; a split without keys writes zeros, so that nothing is left as it was.
    """
    TOKENS: tl.constexpr = BLOCK_M // GROUP
    tile, split = tl.program_id(0) // SPLITS, tl.program_id(0) % SPLITS
    row, kv_head = first_row + tl.program_id(1), tl.program_id(2)
    start = tl.load(query_starts + row)
    length = tl.load(query_starts + row + 1) - start
    seq_len = tl.load(seq_lens + row)
    if tile * TOKENS >= length:  # the grid is made for the longest row
        return

    lanes, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    nth = tile * TOKENS + lanes // GROUP  # of the row's tokens in this step
    heads = kv_head * GROUP + lanes % GROUP
    positions = seq_len - length + nth
    tokens = (start + nth).to(tl.int64)
    mine = (lanes < TOKENS * GROUP) & (nth < length)
    real = mine[:, None] & (dims < D)[None, :]
    where = tokens[:, None] * q_token + heads[:, None] * q_head + dims[None, :] * q_dim
    queries = tl.load(query + where, mask=real, other=0.0)

    share = tl.cdiv(tl.cdiv(seq_len, SPLITS), BLOCK_N) * BLOCK_N
    begin = split * share
    end = tl.minimum(tl.minimum(seq_len, seq_len - length + (tile + 1) * TOKENS), begin + share)
    best = tl.full([BLOCK_M], -1e30, tl.float32)  # finite: the difference of two infinities is not a number
    total = tl.zeros([BLOCK_M], tl.float32)
    found = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for first in range(begin, end, BLOCK_N):
        at = first + tl.arange(0, BLOCK_N)
        known = at < end
        blocks = tl.load(tables + row * table_stride + at // BLOCK_SIZE, mask=known, other=0).to(tl.int64)
        slots = blocks * kv_block + (at % BLOCK_SIZE) * kv_slot + kv_head * kv_head_stride
        there, wanted = cache + slots[:, None] + dims[None, :] * kv_dim, known[:, None] & (dims < D)[None, :]
        keys = tl.load(there, mask=wanted, other=0.0)
        values = tl.load(there + kv, mask=wanted, other=0.0)  # 0 times what is not known may be NaN
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scaling
        scores = tl.where(known[None, :] & (at[None, :] <= positions[:, None]), scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, axis=1))
        weights, rescale = tl.exp(scores - higher[:, None]), tl.exp(best - higher)
        total = total * rescale + tl.sum(weights, axis=1)
        found = found * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        best = higher

    place = (tokens * tl.num_programs(2) * GROUP + heads) * SPLITS + split
    if SPLITS == 1:
        found = found / total[:, None]
    else:
        tl.store(maxima + place, best, mask=mine)
        tl.store(sums + place, total, mask=mine)
    tl.store(output + place[:, None] * D + dims[None, :], found.to(output.dtype.element_ty), mask=real)


@triton.jit
def combine_kernel(
    output, found, maxima, sums, D: tl.constexpr, SPLITS: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """One token and head: what its splits found, on the scale of the largest maximum. Grid: (tokens x heads,).

    `found` [tokens, heads, SPLITS, D], `maxima` and `sums` [tokens, heads, SPLITS] -> `output` [tokens, heads, D].
    """
    place, dims = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    splits = place * SPLITS + tl.arange(0, SPLITS)
    best = tl.load(maxima + splits)
    weights = tl.exp(best - tl.max(best, axis=0))
    weights = weights / tl.sum(weights * tl.load(sums + splits), axis=0)
    parts = tl.load(found + splits[:, None] * D + dims[None, :], mask=(dims < D)[None, :], other=0.0)
    whole = tl.sum(weights[:, None] * parts, axis=0)
    tl.store(output + place * D + dims, whole.to(output.dtype.element_ty), mask=dims < D)
