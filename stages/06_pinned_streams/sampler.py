"""Chooses the next token of each row. Pure: logits and numbers in, ids out.

A row's randomness is a function of its seed and of how many tokens it has, nothing else. A generator shared by the
batch would hand out its numbers by row, and company would change the answer (vLLM issue 17524). Sorting a whole
vocabulary takes far longer than the rest, so only rows that asked for `top_p` or `top_k` are sorted.
"""

import random
from collections.abc import Sequence

import torch

from .sequence import Sampling

COLDEST = 1e-5
"""a lower temperature is greedy: dividing by it would leave the range of numbers"""


def sample(logits: torch.Tensor, samplings: Sequence[Sampling], places: list[int]) -> list[int]:
    """One id a row from `logits` [rows, vocabulary]; temperature 0 takes the likeliest.

    `places` are the output positions to be filled. A number u in [0, 1) is drawn from (seed, place) and the row's
    cumulative distribution is inverted at u.
    """
    ids = logits.argmax(dim=-1)
    drawn = [row for row, sampling in enumerate(samplings) if sampling.temperature >= COLDEST]
    if drawn:
        heat = torch.tensor([[samplings[row].temperature] for row in drawn], device=logits.device)
        u = [[random.Random(f"{samplings[row].seed} {places[row]}").random()] for row in drawn]
        probabilities = torch.softmax(logits[drawn].double() / heat, dim=-1)
        for place, row in enumerate(drawn):
            if samplings[row].top_p < 1 or samplings[row].top_k > 0:
                probabilities[place] = keep_likeliest(probabilities[place], samplings[row])
        cumulative = probabilities.cumsum(dim=-1)
        target = torch.tensor(u, device=logits.device, dtype=torch.double) * cumulative[:, -1:]
        ids[drawn] = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return ids.tolist()


def keep_likeliest(probabilities: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """One row with zeros for all but the `top_k` likeliest, and of those the fewest that hold `top_p` of their sum."""
    ordered, order = probabilities.sort(descending=True, stable=True)
    if sampling.top_k > 0:
        ordered[sampling.top_k :] = 0
    before = ordered.cumsum(dim=-1) - ordered
    ordered[before >= sampling.top_p * ordered.sum()] = 0  # the likeliest has nothing before it, so it stays
    return torch.zeros_like(probabilities).scatter(0, order, ordered)
