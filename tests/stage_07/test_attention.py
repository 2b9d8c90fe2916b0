"""Paged attention alone, against a plain float64 reference that knows no blocks."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.stage_07.core import BLOCK, Parts, resolve, sampling, stage

TORCH = f"{stage.attention.__name__}:TorchAttention"


@dataclass
class Case:
    """One step over scrambled blocks: `shape` has, for each request, its tokens so far and how many are new."""

    shape: list[tuple[int, int]]
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def run(self, attention: Any, only: int | None = None) -> dict[int, torch.Tensor]:
        """What attention gives for each request, or for one of them alone: [new, heads, size]."""
        torch.manual_seed(len(self.shape))
        blocks = (torch.randperm(120) + 1).tolist()
        cache = torch.full((2, 121, BLOCK, self.kv_heads, self.size), float("nan"), dtype=self.dtype)
        cache = cache.to(self.device)
        rows, made = [], {}
        for place, (total, new) in enumerate(self.shape):
            table = [blocks.pop() for _ in range(-(-total // BLOCK))]
            q, k, v = (torch.randn(total, heads, self.size) for heads in (self.heads, self.kv_heads, self.kv_heads))
            made[place] = tuple(tensor.to(self.device, self.dtype) for tensor in (q, k, v))
            row = stage.step.Row(str(place), [0] * new, total - new, table, True, 0, sampling())
            rows += [row] if only in (None, place) else []
            slots = [table[position // BLOCK] * BLOCK + position % BLOCK for position in range(total - new)]
            attention.write(
                made[place][1][: total - new],
                made[place][2][: total - new],
                cache,
                torch.tensor(slots, device=self.device).long(),
            )
        pack = stage.super_sequence.SuperSequence.pack(rows, BLOCK)
        runner = stage.model_runner.ModelRunner.__new__(stage.model_runner.ModelRunner)
        runner.device, runner.attention, runner.caches = torch.device(self.device), attention, [cache]
        paged = runner.inputs(pack).paged
        order = [int(row.request_id) for row in pack.rows]
        q, k, v = (torch.cat([made[p][part][-self.shape[p][1] :] for p in order]) for part in range(3))
        attention.write(k, v, cache, paged.slots)
        out = attention.attend(q, cache, paged, self.size**-0.5)
        pairs = zip(pack.query_starts, pack.query_starts[1:], strict=False)
        return {place: out[start:end] for place, (start, end) in zip(order, pairs, strict=True)}

    def expected(self) -> dict[int, torch.Tensor]:
        """The same without blocks, in float64."""
        torch.manual_seed(len(self.shape))
        torch.randperm(120)
        found = {}
        for place, (total, new) in enumerate(self.shape):
            q, k, v = (torch.randn(total, heads, self.size) for heads in (self.heads, self.kv_heads, self.kv_heads))
            group = self.heads // self.kv_heads
            q, k, v = (tensor.to(self.dtype).double() for tensor in (q, k, v))
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
            scores = torch.einsum("qhd,khd->hqk", q, k) * self.size**-0.5
            scores = scores.masked_fill(torch.ones(total, total).triu(1).bool(), float("-inf"))
            found[place] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)[-new:]
        return found


CASES = {
    "one decode": Case([(33, 1)]),
    "decodes": Case([(1, 1), (16, 1), (17, 1), (100, 1)]),
    "prompts": Case([(1, 1), (16, 16), (17, 17), (50, 50)]),
    "chunks": Case([(40, 7), (32, 16), (33, 17), (90, 2)]),
    "everything": Case([(17, 17), (209, 1), (97, 1), (41, 1), (64, 32)]),
    "no groups": Case([(20, 1), (20, 20)], heads=3, kv_heads=3),
    "one KV head": Case([(20, 1), (20, 20)], heads=8, kv_heads=1),
    "wide heads": Case([(70, 1), (40, 9)], size=128),
    "half precision": Case([(70, 1), (40, 9)], dtype=torch.float16),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_is_attention(case: Case) -> None:
    """The rest of the cache holds NaN, and none of it spreads."""
    expected = case.expected()
    for place, out in case.run(resolve(TORCH)()).items():
        assert out.shape == expected[place].shape
        torch.testing.assert_close(
            out.double(), expected[place], atol=2e-3 if case.dtype.itemsize == 2 else 2e-6, rtol=0
        )


def test_no_token_attends_to_another_request(parts: Any) -> None:
    attention = resolve(parts.attention or TORCH)()
    case = Case([(20, 20), (33, 1), (17, 17), (40, 5)])
    together = case.run(attention)
    for place, out in together.items():
        alone = case.run(attention, only=place)[place]
        assert torch.allclose(out, alone, atol=1e-5), f"request {place} depends on its neighbors"


def test_variants_that_are_not_here_are_refused_by_name() -> None:
    nothing = torch.empty(0)
    with pytest.raises(NotImplementedError, match="sliding_window"):
        stage.attention.paged_attention(None, nothing, nothing, nothing, None, 1.0, paged=None, sliding_window=128)


def test_what_a_backend_is_called_with_names_every_row() -> None:
    """What kernels may rely on: rows of one token first, starts and lengths, tables padded with block 0."""
    seen: list[Any] = []

    class Spy(stage.attention.TorchAttention):
        def attend(self, query: Any, cache: Any, paged: Any, scaling: float) -> Any:
            seen.append(paged)
            return super().attend(query, cache, paged, scaling)

    CASES["everything"].run(Spy())
    [paged] = seen
    assert paged.num_decodes == 3
    assert paged.query_starts.tolist() == [0, 1, 2, 3, 20, 52]
    assert paged.seq_lens.tolist() == [209, 97, 41, 17, 64]
    assert paged.prefills == [(3, 17, 17), (20, 32, 64)]
    assert (paged.max_query_len, paged.max_seq_len) == (32, 209)
    assert paged.block_tables.shape == (5, 14) and paged.block_tables[3, 2:].tolist() == [0] * 12
    assert Parts().attention is None
