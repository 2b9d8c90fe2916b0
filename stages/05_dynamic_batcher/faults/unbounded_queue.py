"""The queue takes whatever comes.

Nothing ever says no, so the wait grows with the queue, and memory with the wait.

A user sees: at first longer and longer waits, then answers that come after the client has left, then a dead server.

Seen in the wild: `max_queue_size` 0 means "without limit" in Triton and is its default; Ollama ignored its limit for
models that were resident already (issue 7758).
"""

from ..batcher import DynamicBatcher
from ..parts import Parts

TEST = "tests/stage_05/test_batcher.py::test_the_queue_has_a_bound"
MESSAGE = "the queue took more than it may hold"


class NeverFull(DynamicBatcher):
    def has_room(self) -> bool:
        return True


PARTS = Parts(batcher=NeverFull)
