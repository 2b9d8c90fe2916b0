"""What all engines are asked, and how far their greedy text agrees with the reference. Knows no engine and no clock."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

STREAMS, SHORTEST, LONGEST = 16, 40, 256
"""in the crowd, and the new tokens of each"""
PROMPT = (8, 48)
"""tokens of a prompt"""
ALONE = 64
"""new tokens of the one who is alone"""
WARM_UP = 8
"""everybody first gets this part of the tokens, so that batches of all sizes have come up once"""

Decode = Callable[[list[int]], str]


@dataclass(frozen=True)
class Job:
    """Prompts as token ids, and how many new tokens each gets."""

    prompts: Sequence[list[int]]
    tokens: Sequence[int]


@dataclass(frozen=True)
class Answer:
    """What came of a job: the seconds it took, and for each prompt how many tokens came, and as which text."""

    seconds: float
    counts: Sequence[int]
    texts: Sequence[str]


def crowd(text: Sequence[int], number: int) -> Job:
    """The prompts of one round, cut out of a text, and the lengths of the answers, which are those of all rounds.

    New prompts, because a prefix cache has seen the old ones.
    """
    cut, lengths = random.Random(number), random.Random(0)
    places = [(cut.randrange(len(text) - PROMPT[1]), cut.randint(*PROMPT)) for _ in range(STREAMS)]
    tokens = [lengths.randint(SHORTEST, LONGEST) for _ in range(STREAMS)]
    return Job([list(text[start : start + length]) for start, length in places], tokens)


def alone(job: Job) -> Job:
    """The first of them, without the others."""
    return Job(job.prompts[:1], [ALONE])


def briefly(job: Job) -> Job:
    """The same people, who want less."""
    return Job(job.prompts, [-(-count // WARM_UP) for count in job.tokens])


def agreement(text: str, ids: Sequence[int], decode: Decode) -> int:
    """With how many of the reference's first tokens a text begins."""
    return next(count for count in range(len(ids), -1, -1) if text.startswith(decode(list(ids[:count]))))
