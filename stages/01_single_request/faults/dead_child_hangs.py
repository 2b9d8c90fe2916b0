"""A call that was with a dead child is never answered.

The child is watched and replaced, but nobody tells the callers whose batch died with it. They wait for a reply that
no process is left to send.

A user sees: after a crash of the model process the server looks healthy, and some requests spin until the client
gives up.

Seen in the wild: after vLLM's engine process had been killed, `/health` went on answering 200 and new requests hung,
until pull request 21728 had the process watched. Issue 39863 reports requests that are accepted with 200, and hang,
after the engine died or deadlocked without a word.
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
