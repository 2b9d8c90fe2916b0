"""A pass that never ends is waited for without end.

The child is alive, so nothing is wrong as far as the parent can see. A kernel that hangs, a lock that is never
released or a stopped process looks like a slow model.

A user sees: from one moment on no request is ever answered, while `/health` says that all is well.

Seen in the wild: vLLM's `/health` answers 200 while its engine is alive but frozen, in a deadlock or a hung collective,
so nobody restarts it. Pull request 36451 proposes to ask the engine itself, with a time limit; an older engine sent
heartbeats (pull request 8583).
"""

from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from ..errors import EngineDead
from ..executor import Executor
from ..parts import Parts

TEST = "tests/stage_01/test_executor.py::test_a_pass_past_its_deadline_fails_and_the_child_is_replaced"
MESSAGE = "still waits for a hung child"


class NoDeadline(Executor):
    def remaining(self) -> float:
        return 3600.0


class CallersGiveUp(NoDeadline):
    def execute(self, batch: list[Any]) -> Any:
        try:
            return self.submit(batch).result(self.deadline)
        except FutureTimeout:
            raise EngineDead("timed out") from None


PARTS = Parts(executor=NoDeadline)


class GiveUpWaiting:
    """Tempting: a timeout where the caller waits. The caller is free, but the child still hangs for everyone else."""

    PARTS = Parts(executor=CallersGiveUp)
    TEST = TEST
    MESSAGE = "the next caller met the same hung child"


NAIVE_FIXES = {"give_up_waiting": GiveUpWaiting}
