"""The handler sleeps while it waits for its result.

It looks every tenth of a second whether its answer is there, with `time.sleep`, inside a coroutine. The sleep stops
the whole event loop, not just this handler.

A user sees: a server that answers nobody, not even `/health`, while anybody waits.

Seen in the wild: `time.sleep` or a blocking client in an `async def` handler is the commonest asyncio mistake; the
event loop's debug mode exists to find it ("Executing took ... seconds").
"""

import time
from concurrent.futures import Future
from typing import Any

from ..engine import Engine
from ..parts import Parts
from ..sequence import Sequence

TEST = "tests/stage_02/test_engine.py::test_the_event_loop_runs_while_a_caller_waits"
MESSAGE = "the whole server slept while one caller waited"


class Sleeps(Engine):
    async def answer(self, name: str, sequence: Sequence, future: "Future[Any]") -> str:
        while not future.done():
            time.sleep(0.1)  # noqa: ASYNC251
        return await super().answer(name, sequence, future)


PARTS = Parts(engine=Sleeps)
