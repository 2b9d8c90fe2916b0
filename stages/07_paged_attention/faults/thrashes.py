"""Admission spends the last block, so the newcomer is thrown out again at once.

Whoever is admitted takes what those who run will need within a few tokens. Then one of them needs a block, the newest
is preempted, its work is thrown away, it is admitted again as soon as its prompt fits, and so on.

A user sees: under load the GPU is busy as never before, and hardly a token comes out: it computes the same prompts over
and over.

Seen in the wild: vLLM issue 37307 (100 tokens a second became 1.5), and 21809 before it.
"""

from ..parts import Parts
from ..scheduler import Scheduler

TEST = "tests/stage_07/test_core_scheduler.py::test_nobody_is_preempted_just_after_being_admitted"
MESSAGE = "steps after it was admitted"


class SpendsTheLastBlock(Scheduler):
    def headroom(self) -> int:
        return 0


class OnePercent(Scheduler):
    def headroom(self) -> int:
        return self.limits.num_blocks // 100 + 1 if self.running else 0


PARTS = Parts(scheduler=f"{__name__}:SpendsTheLastBlock")


class KeepOnePercent:
    """Tempting: always leave one percent of the pool. What those who run will need has nothing to do with its size."""

    PARTS = Parts(scheduler=f"{__name__}:OnePercent")
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"keep_one_percent": KeepOnePercent}
