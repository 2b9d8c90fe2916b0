"""The queue takes everything.

Nothing ever says no. When requests come faster than passes, the queue grows, and with it everybody's wait, until
clients time out on answers that are still being computed for them.

A user sees: under load first slowness, then time-outs for all, then a server out of memory.

Seen in the wild: Ollama's limit was not applied to models already loaded (Ollama issue 7758); Triton's `max_queue_size`
is 0 unless set, and that means no limit (`ModelQueuePolicy`, in its model configuration).
"""

from ..parts import Parts
from ..scheduler import Scheduler

TEST = "tests/stage_02/test_scheduler.py::test_the_queue_has_a_bound"
MESSAGE = "the queue took more than it may hold"


class TakesEverything(Scheduler):
    def has_room(self, count: int) -> bool:
        return True


PARTS = Parts(scheduler=TakesEverything)
