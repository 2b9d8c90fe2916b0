"""The scheduler hands out its own list instead of a copy.

Whoever loops over the batch and finishes its sequences one by one shortens the list under the loop, and every
second sequence is skipped.

A user sees: with four callers A, B, C and D in a batch, A's answer is right, C gets B's answer, and B and D get a 503.
Then the loop has run out of sequences before it has run out of results, so the driver stops and the server with it. A
caller who is alone in the batch sees nothing wrong.

Seen in the wild: vLLM's scheduler removed aborted requests from the list that it was looping over, skipped some, and
went on computing them (pull request 969 walks the list backwards). When the list became a deque, the same loop raised
(pull request 2371).
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
