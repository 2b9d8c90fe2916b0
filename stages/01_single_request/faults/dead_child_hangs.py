"""A call that was with a dead child is never answered.

The child is watched and replaced, but nobody tells the callers whose batch died with it. They wait for a reply that
no process is left to send.

A user sees: after a crash of the model process the server looks healthy, and some requests spin until the client
gives up.

Seen in the wild: a worker killed by the out-of-memory killer behind a plain `result_queue.get()`; a dead engine
that still answers 200 (vLLM issues 21728 and 39863).
"""

from concurrent.futures import Future
from typing import Any

from ..executor import Executor
from ..parts import Parts

TEST = "tests/stage_01/test_executor.py::test_a_call_with_a_child_that_dies_fails_at_once"
MESSAGE = "still waits for a dead child"


class ForgetsItsCallers(Executor):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.forgotten: list[Future[Any]] = []

    def abandon(self, calls: "list[Future[Any]]", reason: str) -> None:
        self.forgotten += calls

    def close(self) -> None:
        super().close()
        super().abandon(self.forgotten, "the server is closing")  # so that even this one can be stopped


PARTS = Parts(executor=ForgetsItsCallers)
