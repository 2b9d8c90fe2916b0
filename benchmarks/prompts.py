"""What the benchmarks ask, and what the right answer is.

`tiny-opt` counts, so a counting prompt fixes its answer and its length: each number is one token, and the stop token
is one more. Any other model gets one fixed prompt and is told to ignore its stop token. Everything is seeded.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

HIGHEST = 99
"""as far as tiny-opt counts"""


@dataclass(frozen=True)
class Prompt:
    """One request's text, its limits, and what must come back (None: anything)."""

    text: str
    max_new_tokens: int
    tokens: int
    answer: str | None = None
    ignore_eos: bool = False

    def body(self) -> dict[str, Any]:
        """The JSON that a server is sent."""
        return {"prompt": self.text, "max_new_tokens": self.max_new_tokens, "ignore_eos": self.ignore_eos}


def count(first: int, last: int) -> Prompt:
    """Count from `first` to `last`. The limit leaves room for a server that forgets to stop to show it."""
    numbers = last - first + 1
    limit = 50 if numbers < 50 else numbers + 10
    text = "".join(f" {number}" for number in range(first, last + 1))
    return Prompt(f"Count from {first} to {last}:", limit, numbers + 1, text)


def counting(shortest: int, longest: int, seed: int) -> Iterator[Prompt]:
    """Counting prompts without end, with `shortest` to `longest` numbers in the answer, each length as likely."""
    if not 1 <= shortest <= longest <= HIGHEST + 1:
        raise ValueError(f"answers have 1 to {HIGHEST + 1} numbers, not {shortest} to {longest}")
    draw = random.Random(seed)
    while True:
        numbers = draw.randint(shortest, longest)
        first = draw.randint(0, HIGHEST + 1 - numbers)
        yield count(first, first + numbers - 1)


def fixed(text: str, tokens: int) -> Iterator[Prompt]:
    """The same prompt without end, answered with exactly `tokens` tokens."""
    return repeat(Prompt(text, tokens, tokens, ignore_eos=True))
