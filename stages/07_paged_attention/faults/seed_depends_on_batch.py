"""All rows draw from one generator, so a row's numbers depend on who else is in the batch.

The generator is seeded with the first row's seed and hands out numbers by row.

A user sees: the same prompt with the same seed gives another answer whenever the server is busy.

Seen in the wild: vLLM issue 17524.
"""

import random

from ..parts import Parts
from ..sampler import Sampler
from ..step import Row

TEST = "tests/stage_07/test_sampler.py::test_the_same_seed_gives_the_same_tokens_in_any_company"
MESSAGE = "company changed what a seed gives"


class OneGenerator(Sampler):
    def uniform(self, rows: list[Row]) -> list[float]:
        generator = random.Random(f"{rows[0].sampling.seed} {rows[0].place}")
        return [generator.random() for _ in rows]


class CountsSteps(Sampler):
    steps = 0

    def uniform(self, rows: list[Row]) -> list[float]:
        self.steps += 1
        return [random.Random(f"{row.sampling.seed} {self.steps}").random() for row in rows]


PARTS = Parts(sampler=f"{__name__}:OneGenerator")


class CountTheSteps:
    """Tempting: a generator for each row, from its seed and the step. How many steps there were depends on the rest."""

    PARTS = Parts(sampler=f"{__name__}:CountsSteps")
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"count_the_steps": CountTheSteps}
