"""The scheduler hands out its own list instead of a copy.

Whoever loops over the batch and finishes its sequences one by one shortens the list under the loop, and every
second sequence is skipped.

A user sees: every other answer goes to the wrong caller, or comes a pass late.

Seen in the wild: the code this stage grew from returned the active list itself, and had to remove results one by
one downstream. Mutating what one iterates over is an old trap with a new victim.
"""

from ..parts import Parts
from ..scheduler import Scheduler
from ..sequence import Sequence

TEST = "tests/stage_02/test_scheduler.py::test_the_returned_batch_belongs_to_the_caller"
MESSAGE = "finishing one sequence hid its neighbor from the loop"


class LendsItsList(Scheduler):
    def schedule(self) -> list[Sequence]:
        super().schedule()
        return self.active


PARTS = Parts(scheduler=LendsItsList)
