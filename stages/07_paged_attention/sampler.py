"""Chooses the next token of each row. Pure: logits and rows in, tokens out.

A row's randomness is a function of its seed and of the token's place in the answer, nothing else. A generator shared by
the batch would hand out its numbers by row, and company would change the answer (vLLM issue 17524).
"""

import random

import torch

from .messages import Logprobs
from .step import Row, Sampled


class Sampler:
    """Vectorized over rows: argmax for all, a draw for those with a temperature, a sort for those that cut the tail."""

    def __call__(self, logits: torch.Tensor, rows: list[Row]) -> list[Sampled]:
        """One token a row from `logits` [rows, vocabulary]."""
        logits = logits.float()
        ids = logits.argmax(dim=-1)
        drawn = [place for place, row in enumerate(rows) if row.sampling.temperature > 0]
        if drawn:
            ids[drawn] = self.draw(logits[drawn], [rows[place] for place in drawn])
        chosen = ids.tolist()
        return [Sampled(*pair) for pair in zip(chosen, self.logprobs(logits, chosen, rows), strict=True)]

    def draw(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        """Ids [rows]: each row's cumulative distribution, inverted at its u. No row here is greedy."""
        heat = torch.tensor([[row.sampling.temperature] for row in rows], device=logits.device)
        scaled = logits / heat
        cut = [place for place, row in enumerate(rows) if row.sampling.top_k or row.sampling.top_p < 1]
        if cut:
            scaled[cut] = self.cut_tail(scaled[cut], [rows[place] for place in cut])
        cumulative = torch.softmax(scaled, dim=-1).cumsum(dim=-1)
        target = torch.tensor([[u] for u in self.uniform(rows)], device=logits.device) * cumulative[:, -1:]
        return torch.searchsorted(cumulative, target, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)

    def cut_tail(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        """Leave the `top_k` likeliest, and of those the fewest that reach `top_p`; the rest become impossible."""
        ordered, order = logits.sort(dim=-1, descending=True)
        size = logits.shape[-1]
        k = torch.tensor([[row.sampling.top_k or size] for row in rows], device=logits.device)
        ordered = ordered.masked_fill(torch.arange(size, device=logits.device) >= k, float("-inf"))
        chances = torch.softmax(ordered, dim=-1)
        p = torch.tensor([[row.sampling.top_p] for row in rows], device=logits.device)
        beyond = chances.cumsum(dim=-1) - chances >= p  # of what comes before each; the first always stays
        beyond[:, 0] = False
        return torch.empty_like(logits).scatter_(-1, order, ordered.masked_fill(beyond, float("-inf")))

    def uniform(self, rows: list[Row]) -> list[float]:
        """A number in [0, 1) for each row."""
        return [random.Random(f"{row.sampling.seed} {row.place}").random() for row in rows]

    def logprobs(self, logits: torch.Tensor, chosen: list[int], rows: list[Row]) -> list[Logprobs | None]:
        """The model's own log-probabilities (of temperature 1, nothing cut) for the rows that asked."""
        found: list[Logprobs | None] = [None] * len(rows)
        asked = [place for place, row in enumerate(rows) if row.sampling.logprobs is not None]
        if asked:
            table = torch.log_softmax(logits[asked], dim=-1)
            top = table.topk(min(table.shape[-1], max(rows[place].sampling.logprobs or 0 for place in asked)))
            for place, row, values, ids in zip(asked, table, top.values.tolist(), top.indices.tolist(), strict=True):
                count = rows[place].sampling.logprobs
                found[place] = Logprobs(row[chosen[place]].item(), ids[:count], values[:count])
        return found
