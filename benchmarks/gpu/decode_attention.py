"""07.7 What decode attention makes of the memory's bandwidth, next to a copy, and next to PyTorch's attention.

A decode reads every key and value of its request once and does little else, so a copy is the measure. PyTorch's
attention wants keys and values in one piece: either they are gathered first, as the readable backend does, or one
pretends that they lay so already.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from .rows import Row
from .steps import Shape, Step, difference, stage
from .timing import seconds

HEADS, KV_HEADS, SIZE = 32, 8, 128
"""as in models of 8 billion parameters"""
SIZES = ((1, 1024), (1, 16384), (8, 1024), (8, 16384), (32, 2048), (64, 512), (128, 1024), (256, 512))
"""(batch, tokens of each request)"""
REHEARSED = ((1, 40), (3, 20))
TOLERANCE = 2e-2


def check(device: str) -> Iterator[Row]:
    """First a copy, then every size."""
    copied = copy_bandwidth(device)
    told = f"{copied / 1e9:.0f} GB/s, read and written"
    yield Row("07 decode", "a copy", told, True, {"gigabytes_per_second": copied / 1e9})
    if not find_spec("triton"):
        return
    for batch, length in SIZES if device == "cuda" else REHEARSED:
        heads, kv_heads, size = (HEADS, KV_HEADS, SIZE) if device == "cuda" else (4, 2, 16)
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        step = Step(Shape(((length, 1),) * batch, heads, kv_heads, size, dtype), device, seed=batch)
        ours, gathered = stage.triton_attention.TritonAttention(), stage.attention.TorchAttention()
        query, keys, values = dense(step)
        off = max(difference(step.run(one), alone(query, keys, values).squeeze(2)) for one in (ours, gathered))
        took = seconds(lambda step=step, ours=ours: step.attend(ours), device)
        slow = seconds(lambda step=step, gathered=gathered: step.attend(gathered), device)
        best = seconds(lambda some=(query, keys, values): alone(*some), device)
        moved = (keys.numel() + values.numel() + 2 * query.numel()) * dtype.itemsize
        figures = {"seconds": took, "bytes": moved, "gigabytes_per_second": moved / took / 1e9}
        figures |= {"share_of_copy": moved / took / copied, "of_gathered": slow / took, "of_contiguous": best / took}
        told = (
            f"{took * 1e6:.0f} us, {moved / took / 1e9:.0f} GB/s, {moved / took / copied:.0%} of a copy;"
            f" {slow / took:.1f} times gather + SDPA, {best / took:.2f} times SDPA on KV in one piece"
        )
        yield Row("07 decode", f"{batch} x {length}", told, off <= TOLERANCE, {**figures, "off": off})


def copy_bandwidth(device: str) -> float:
    """Bytes a second, read and written."""
    source = torch.zeros(1 << (30 if device == "cuda" else 20), dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source), device)


def dense(step: Step) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query [B, heads, 1, D], keys and values [B, KV heads, L, D], as if they had never been in blocks."""
    queries, keys, values = zip(*step.content, strict=True)
    query = torch.stack(queries).transpose(1, 2)
    key, value = (torch.stack(some).transpose(1, 2).contiguous() for some in (keys, values))
    return query, key, value


def alone(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """PyTorch's own attention."""
    return sdpa(query, keys, values, enable_gqa=True)
