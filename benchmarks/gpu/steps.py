"""Steps of attention with random content over scrambled blocks, and what must come of them, in float64."""

from dataclasses import dataclass
from typing import Any

import torch

from .without_web import Stage

BLOCK = 16
stage = Stage("07_paged_attention")


@dataclass(frozen=True)
class Shape:
    """One step: for each request its tokens so far, and how many of them are new; those with one new token first."""

    requests: tuple[tuple[int, int], ...]
    heads: int
    kv_heads: int
    size: int
    dtype: torch.dtype

    def __str__(self) -> str:
        kind = f"{self.heads}/{self.kv_heads} heads of {self.size}, {str(self.dtype).removeprefix('torch.')}"
        return f"{len(self.requests)} requests, {kind}"


class Step:
    """The tensors of a step. What nobody owns of the cache is NaN, so that it shows where it is read."""

    def __init__(self, shape: Shape, device: str, seed: int) -> None:
        self.shape = shape
        random = torch.Generator(device).manual_seed(seed)

        def made(total: int, heads: int) -> torch.Tensor:
            return torch.randn(total, heads, shape.size, generator=random, device=device).to(shape.dtype)

        kv_heads = shape.kv_heads
        self.content = [
            (made(new, shape.heads), made(total, kv_heads), made(total, kv_heads)) for total, new in shape.requests
        ]
        self.query = torch.cat([query for query, _, _ in self.content])
        needed = [-(-total // BLOCK) for total, _ in shape.requests]
        free = (torch.randperm(sum(needed), generator=random, device=device) + 1).tolist()
        tables = [[free.pop() for _ in range(count)] for count in needed]
        self.cache = torch.full(
            (2, sum(needed) + 1, BLOCK, shape.kv_heads, shape.size), float("nan"), dtype=shape.dtype, device=device
        )
        rows = [
            stage.step.Row(str(place), [0] * new, total - new, table, True, 0, stage.messages.SamplingParams(1))
            for place, ((total, new), table) in enumerate(zip(shape.requests, tables, strict=True))
        ]
        pack = stage.super_sequence.SuperSequence.pack(rows, BLOCK)
        for (total, new), table, (_, keys, values) in zip(shape.requests, tables, self.content, strict=True):
            places = torch.arange(total - new, device=device)
            slots = torch.tensor(table, device=device)[places // BLOCK] * BLOCK + places % BLOCK
            self.cache[0].flatten(0, 1)[slots] = keys[: total - new]
            self.cache[1].flatten(0, 1)[slots] = values[: total - new]
        self.paged = paged(pack, self.cache, device)

    def run(self, attention: Any) -> torch.Tensor:
        """Write what is new, then attend: [T, heads, D]."""
        new = [slice(-new, None) for _, new in self.shape.requests]
        keys, values = (
            torch.cat([content[part][rows] for content, rows in zip(self.content, new, strict=True)]) for part in (1, 2)
        )
        attention.write(keys, values, self.cache, self.paged.slots)
        return self.attend(attention)

    def attend(self, attention: Any) -> torch.Tensor:
        """The part that is timed."""
        return attention.attend(self.query, self.cache, self.paged, self.shape.size**-0.5)

    def expected(self) -> torch.Tensor:
        """The same without blocks and in float64: [T, heads, D]."""
        found, group = [], self.shape.heads // self.shape.kv_heads
        for (total, new), content in zip(self.shape.requests, self.content, strict=True):
            q, k, v = (tensor.double() for tensor in content)
            k, v = (tensor.repeat_interleave(group, dim=1) for tensor in (k, v))
            scores = torch.einsum("qhd,khd->hqk", q, k) * self.shape.size**-0.5
            later = torch.ones(new, total, dtype=torch.bool, device=q.device).triu(total - new + 1)
            found.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(later, float("-inf")).softmax(-1), v))
        return torch.cat(found)


def paged(pack: Any, cache: torch.Tensor, device: str) -> Any:
    """What attention is told of a step, as the model runner would tell it."""
    runner = object.__new__(stage.model_runner.ModelRunner)
    runner.device, runner.attention, runner.caches = torch.device(device), None, [cache]
    return runner.inputs(pack).paged


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """How far off, at worst, relative to 1 + what is expected; NaN if anything is."""
    return ((found.double() - expected.double()).abs() / (1 + expected.double().abs())).max().item()
