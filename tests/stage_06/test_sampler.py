"""What the sampler has learned since stage 03: top-p and top-k, and to sort for nobody else."""

from typing import Any

import pytest
import torch

from tests.serving import Stage

stage = Stage("06_pinned_streams")
sample = stage.sampler.sample
LOGITS = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1]]))


def drawn(count: int = 500, **more: Any) -> set[int]:
    """All tokens that so many seeds draw."""
    samplings = [stage.sequence.Sampling(1, 1.0, seed, **more) for seed in range(count)]
    return set(sample(LOGITS.expand(count, -1), samplings, [0] * count))


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 1}, {0}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.01}, {0}),
        ({"top_p": 0.35}, {0}),
        ({"top_p": 0.5}, {0, 1}),
        ({"top_p": 0.85}, {0, 1, 2}),
        ({"top_k": 2, "top_p": 0.5}, {0}),
        ({"top_k": 3, "top_p": 0.95}, {0, 1, 2}),
    ],
)
def test_only_the_likeliest_are_drawn(more: dict[str, Any], tokens: set[int]) -> None:
    assert drawn(**more) == tokens


def test_a_row_that_asks_for_it_changes_no_other() -> None:
    plain = [stage.sequence.Sampling(1, 1.0, seed) for seed in range(200)]
    mixed = [
        sampling if seed % 2 else stage.sequence.Sampling(1, 1.0, seed, top_k=1) for seed, sampling in enumerate(plain)
    ]
    rows, places = LOGITS.expand(200, -1), [0] * 200
    assert sample(rows, plain, places)[1::2] == sample(rows, mixed, places)[1::2]


def test_nobody_is_sorted_who_did_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = []
    keep = stage.sampler.keep_likeliest
    monkeypatch.setattr(stage.sampler, "keep_likeliest", lambda *args: rows.append(args) or keep(*args))
    samplings = [stage.sequence.Sampling(1, heat, 1, top_k=k) for heat, k in ((1.0, 0), (1.0, 2), (0.0, 2))]
    sample(LOGITS.expand(3, -1), samplings, [0, 0, 0])
    assert len(rows) == 1


def test_the_same_seed_and_place_give_what_stage_03_gives() -> None:
    before = Stage("03_continuous_streaming").sampler.sample
    seeds, places = list(range(100)), [seed % 7 for seed in range(100)]
    samplings = [stage.sequence.Sampling(1, 0.7, seed) for seed in seeds]
    rows = LOGITS.expand(100, -1)
    assert sample(rows, samplings, places) == before(rows, [0.7] * 100, seeds, places)
