"""Chooses the next token of each row. Pure: logits and numbers in, ids out.

A row's randomness is a function of its seed and of how many tokens it has, nothing else. A generator shared by the
batch would hand out its numbers by row, and company would change the answer (vLLM issue 17524).
"""

import random

import torch

COLDEST = 1e-5
"""a lower temperature is greedy: dividing by it would leave the range of numbers"""


def sample(logits: torch.Tensor, temperatures: list[float], seeds: list[int], places: list[int]) -> list[int]:
    """One id a row from `logits` [rows, vocabulary]; temperature 0 takes the likeliest.

    `places` are the output positions to be filled. A number u in [0, 1) is drawn from (seed, place) and the row's
    cumulative distribution is inverted at u.
    """
    ids = logits.argmax(dim=-1)
    drawn = [row for row, temperature in enumerate(temperatures) if temperature >= COLDEST]
    if drawn:
        heat = torch.tensor([[temperatures[row]] for row in drawn], device=logits.device)
        u = [[random.Random(f"{seeds[row]} {places[row]}").random()] for row in drawn]
        cumulative = torch.softmax(logits[drawn].double() / heat, dim=-1).cumsum(dim=-1)
        target = torch.tensor(u, device=logits.device, dtype=torch.double) * cumulative[:, -1:]
        ids[drawn] = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return ids.tolist()
