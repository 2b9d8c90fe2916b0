"""07.7 The Triton kernels are attention: random steps, other ones in each run, against float64."""

import random
from collections.abc import Iterator
from importlib.util import find_spec

import torch

from .rows import Row, agreeing
from .steps import Shape, Step, difference, stage

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
INTERPRETED = (torch.float32, torch.float16)
"""Triton's interpreter multiplies bfloat16 as if it were whole numbers"""
STEPS = 5
"""for each type"""


def check(device: str, seed: int | None = None) -> Iterator[Row]:
    """A seed makes a run again; without one, each has its own."""
    if not find_spec("triton"):
        yield Row("07 kernels", "Triton", "not installed here, so not rehearsed", device != "cuda")
        return
    seed = random.SystemRandom().getrandbits(31) if seed is None else seed
    draw = random.Random(seed)
    for dtype in TOLERANCE if device == "cuda" else INTERPRETED:
        worst = 0.0
        for _ in range(STEPS if device == "cuda" else 2):
            step = Step(drawn(draw, dtype, device), device, draw.getrandbits(31))
            kernels = stage.triton_attention.TritonAttention(draw.choice([None, 1, 4]))
            off = difference(step.run(kernels), step.expected())
            worst = off if off != off else max(worst, off)
            if not worst <= TOLERANCE[dtype]:
                break
        yield agreeing("07 kernels", f"{dtype}".removeprefix("torch."), worst, TOLERANCE[dtype], f"seed {seed}: ")


def drawn(draw: random.Random, dtype: torch.dtype, device: str) -> Shape:
    """A step of any shape: decodes, then prompts and chunks of prompts."""
    longest = 3000 if device == "cuda" else 100
    decodes = [(draw.randint(1, longest), 1) for _ in range(draw.randint(1, 40 if device == "cuda" else 3))]
    totals = [draw.randint(2, longest // 3) for _ in range(draw.randint(0, 3))]
    kv_heads, group, size = draw.choice([1, 2, 8]), draw.choice([1, 4, 7]), draw.choice([64, 80, 128])
    if device != "cuda":
        kv_heads, size = min(kv_heads, 2), 32
    prompts = [(total, draw.randint(2, total)) for total in totals]
    return Shape((*decodes, *prompts), kv_heads * group, kv_heads, size, dtype)
