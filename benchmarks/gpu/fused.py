"""Small operations, each alone and compiled into one kernel: what fusing them is worth, and what it is worth a step."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import silu

from .rows import Row
from .steps import difference
from .timing import seconds

TOKENS = (8, 2048)
HIDDEN, INNER, HEADS, SIZE = 2048, 8192, 32, 64
"""as Llama 3.2 1B"""
TOLERANCE = 5e-2


def add_and_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The residual stream, and RMSNorm on it in float32."""
    total = (x + residual).float()
    return weight * (total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def gate(up: torch.Tensor, through: torch.Tensor) -> torch.Tensor:
    """The activation of a gated MLP."""
    return silu(through) * up


def rotate(query: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    one, other = query.chunk(2, dim=-1)
    return query * cos + torch.cat((-other, one), dim=-1) * sin


@torch.inference_mode()
def check(device: str) -> Iterator[Row]:
    """Each operation at a small and a large number of tokens. A rehearsal traces, but makes no kernel."""
    real = device == "cuda"
    backend = "inductor" if real else "aot_eager"
    dtype = torch.bfloat16 if real else torch.float32
    for tokens in TOKENS if real else (8,):

        def some(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device=device, dtype=dtype)

        operations: dict[str, tuple[Callable[..., torch.Tensor], tuple[Any, ...]]] = {
            "add and RMSNorm": (add_and_norm, (some(tokens, HIDDEN), some(tokens, HIDDEN), some(HIDDEN))),
            "gated SiLU": (gate, (some(tokens, INNER), some(tokens, INNER))),
            "rotary": (rotate, (some(tokens, HEADS, SIZE), some(tokens, 1, SIZE), some(tokens, 1, SIZE))),
        }
        for name, (plain, given) in operations.items():
            torch.compiler.reset()
            compiled: Any = torch.compile(plain, backend=backend, dynamic=False)
            off = difference(compiled(*given), plain(*given))
            alone = seconds(lambda plain=plain, given=given: plain(*given), device)
            fused = seconds(lambda compiled=compiled, given=given: compiled(*given), device)
            told = f"{fused * 1e6:.0f} us against {alone * 1e6:.0f} plain, {alone / fused:.1f} times"
            figures = {"seconds": fused, "plain_seconds": alone, "off": off}
            yield Row("fused", f"{name}, {tokens} tokens", told, off <= TOLERANCE, figures)
