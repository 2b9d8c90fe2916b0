"""The handler sleeps while it waits for its result.

It looks every tenth of a second whether its answer is there, with `time.sleep`, inside a coroutine. The sleep stops
the whole event loop, not just this handler.

A user sees: a server that answers nobody, not even `/health`, while anybody waits.

Seen in the wild: results of a Ray Serve deployment came late, at random, because one of its coroutines slept with
`time.sleep` (Ray issue 40328); a Socket.IO server did not hear "stop" while a handler slept (python-socketio issue
422). asyncio's debug mode reports callbacks that take longer than 0.1 s ("Developing with asyncio", in Python's
documentation).
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
