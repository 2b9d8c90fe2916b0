"""The sampler alone: pure, logits and numbers in, ids out."""

import pytest
import torch

from tests.serving import Stage

sample = Stage("03_continuous_streaming").sampler.sample
LOGITS = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.1, 0.2, 0.3, 0.4]]))


def test_temperature_zero_takes_the_likeliest() -> None:
    assert sample(LOGITS, [0.0, 0.0], [1, 2], [0, 0]) == [0, 3]


def test_the_same_seed_and_place_give_the_same_token_in_any_company() -> None:
    alone = [sample(LOGITS[:1], [1.0], [7], [place])[0] for place in range(50)]
    pairs = [sample(LOGITS, [1.0, 1.0], [7, place], [place, 3]) for place in range(50)]
    swapped = [sample(LOGITS.flip(0), [0.5, 1.0], [place, 7], [9, place]) for place in range(50)]
    assert alone == [first for first, _ in pairs] == [second for _, second in swapped]
    assert len(set(alone)) > 1


def test_different_seeds_and_places_differ() -> None:
    drawn = {tuple(sample(LOGITS[:1], [1.0], [seed], [place])[0] for place in range(20)) for seed in range(20)}
    assert len(drawn) == 20


def test_frequencies_follow_the_distribution() -> None:
    count = 4000
    ids = torch.tensor(sample(LOGITS[:1].expand(count, -1), [1.0] * count, list(range(count)), [0] * count))
    shares = torch.bincount(ids, minlength=4) / count
    assert torch.allclose(shares, torch.tensor([0.5, 0.25, 0.125, 0.125]), atol=0.03)


def test_temperature_sharpens_and_flattens() -> None:
    count = 2000
    rows, seeds, places = LOGITS[:1].expand(count, -1), list(range(count)), [0] * count
    cold = sample(rows, [0.2] * count, seeds, places).count(0)
    warm = sample(rows, [1.0] * count, seeds, places).count(0)
    hot = sample(rows, [2.0] * count, seeds, places).count(0)
    assert cold > warm > hot


def test_an_impossible_token_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]]).expand(500, -1)
    assert set(sample(logits, [2.0] * 500, list(range(500)), [0] * 500)) == {0, 2}


@pytest.mark.parametrize("temperature", [1e-40, 1e-300, 5e-324])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    seeds = list(range(200))
    drawn = sample(LOGITS[:1].expand(200, -1), [temperature] * 200, seeds, [0] * 200)
    assert set(drawn) == {0}
