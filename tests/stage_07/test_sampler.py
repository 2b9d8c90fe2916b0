"""The sampler alone: logits and rows in, tokens out."""

from typing import Any

import torch

from tests.stage_07.core import resolve, sampling, stage

LOGITS = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.1, 0.2, 0.3, 0.4]]))


def row(place: int = 0, temperature: float = 1.0, **options: Any) -> Any:
    return stage.step.Row("id", [5], 0, [1], True, place, sampling(temperature=temperature, **options))


def sample(logits: torch.Tensor, rows: list[Any], sampler: Any = None) -> list[int]:
    return [one.token_id for one in (sampler or stage.sampler.Sampler())(logits, rows)]


def many(count: int = 2000, **options: Any) -> list[int]:
    """What the first row of LOGITS gives for many seeds."""
    return sample(LOGITS[:1].expand(count, -1), [row(seed=seed, **options) for seed in range(count)])


def test_temperature_zero_takes_the_likeliest() -> None:
    assert sample(LOGITS, [row(temperature=0.0), row(temperature=0.0, seed=3, top_k=2, top_p=0.1)]) == [0, 3]


def test_the_same_seed_gives_the_same_tokens_in_any_company(parts: Any) -> None:
    new = resolve(parts.sampler)
    alone, crowd = new(), new()
    flat = torch.zeros(1, 1000)
    expected = [sample(flat, [row(place, seed=7)], alone)[0] for place in range(20)]
    sample(flat, [row(seed=1)], crowd)  # a step in which it did not take part
    company = [row(3, 0.7, seed=5), row(9, 1.5, seed=6, top_k=5)]
    found = []
    for place in range(20):
        rows = [*company[: place % 3], row(place, seed=7), *company[place % 3 :]]
        found.append(sample(flat.expand(3, -1), rows, crowd)[place % 3])
    assert found == expected, "company changed what a seed gives"
    assert len(set(expected)) > 10


def test_different_seeds_and_places_differ() -> None:
    drawn = {tuple(sample(LOGITS[:1], [row(place, seed=seed)])[0] for place in range(20)) for seed in range(20)}
    assert len(drawn) == 20


def test_frequencies_follow_the_distribution() -> None:
    shares = torch.bincount(torch.tensor(many(4000)), minlength=4) / 4000
    assert torch.allclose(shares, torch.tensor([0.5, 0.25, 0.125, 0.125]), atol=0.03)


def test_temperature_sharpens_and_flattens() -> None:
    assert many(temperature=0.2).count(0) > many(temperature=1.0).count(0) > many(temperature=2.0).count(0)


def test_top_k_leaves_k_and_top_p_the_fewest_that_reach_it() -> None:
    assert set(many(top_k=1)) == {0}
    assert set(many(top_k=2)) == {0, 1}
    assert set(many(top_p=0.5)) == {0}
    assert set(many(top_p=0.51)) == {0, 1}
    assert set(many(top_p=0.9)) == {0, 1, 2, 3}
    assert set(many(top_p=1e-9)) == {0}
    assert set(many(top_k=50)) == {0, 1, 2, 3}
    assert set(many(top_k=2, top_p=0.67)) == {0, 1}
    assert set(many(top_k=2, top_p=0.66)) == {0}
    shares = torch.bincount(torch.tensor(many(4000, top_k=2)), minlength=2) / 4000
    assert torch.allclose(shares, torch.tensor([2 / 3, 1 / 3]), atol=0.03)


def test_only_rows_that_asked_for_a_cut_are_sorted() -> None:
    sorted_rows: list[int] = []

    class Counting(stage.sampler.Sampler):
        def cut_tail(self, logits: torch.Tensor, rows: list[Any]) -> torch.Tensor:
            sorted_rows.append(len(rows))
            return super().cut_tail(logits, rows)

    logits = torch.zeros(4, 10)
    sample(logits, [row(), row(temperature=0.0), row(seed=1), row(seed=2)], Counting())
    assert sorted_rows == []
    sample(logits, [row(), row(temperature=0.0, top_k=3), row(top_k=3), row(top_p=0.5)], Counting())
    assert sorted_rows == [2]


def test_a_cut_for_one_row_leaves_the_others_alone() -> None:
    plain = many(50, top_k=0)
    rows = [row(seed=seed) for seed in range(50)] + [row(seed=seed, top_k=1) for seed in range(50)]
    mixed = sample(LOGITS[:1].expand(100, -1), rows)
    assert mixed == plain + [0] * 50


def test_an_impossible_token_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]]).expand(500, -1)
    assert set(sample(logits, [row(seed=seed, temperature=2.0) for seed in range(500)])) == {0, 2}


def test_logprobs_are_the_models_own_for_the_rows_that_asked() -> None:
    rows = [row(temperature=0.0, logprobs=2), row(temperature=0.3, top_k=1), row(temperature=0.3, top_k=1, logprobs=0)]
    first, second, third = stage.sampler.Sampler()(LOGITS[[0, 1, 1]], rows)
    assert first.logprobs.ids == [0, 1]
    torch.testing.assert_close(torch.tensor(first.logprobs.values).exp(), torch.tensor([0.5, 0.25]))
    torch.testing.assert_close(torch.tensor(first.logprobs.chosen).exp(), torch.tensor(0.5))
    assert second.logprobs is None
    assert third.token_id == 3 and third.logprobs.ids == third.logprobs.values == []
    torch.testing.assert_close(torch.tensor(third.logprobs.chosen).exp(), torch.tensor(0.4))


def test_more_logprobs_than_there_are_tokens_are_all_there_are() -> None:
    [one] = stage.sampler.Sampler()(LOGITS[:1], [row(temperature=0.0, logprobs=99)])
    assert sorted(one.logprobs.ids) == [0, 1, 2, 3]
