"""The route blocks the event loop for a whole pass.

A coroutine calls the executor directly. The call waits for a reply from the pipe, and while it waits the event loop
does nothing else.

A user sees: while one prompt is being answered nobody else is even greeted: no new connection, no `/health`.

Seen in the wild: a server built with Cog left its health check unanswered for as long as a prediction ran, because its
route was an `async def` (Cog issue 1719). A router of vLLM's production stack did blocking I/O on its event loop,
missed its liveness probes, and was restarted again and again without completing a request (production-stack issue
1016).
"""

from typing import Any

from ..engine import Engine
from ..parts import Parts
from ..sequence import Sequence

TEST = "tests/stage_01/test_engine.py::test_health_answers_while_a_pass_runs"
MESSAGE = "the event loop was frozen"


class BlockingEngine(Engine):
    async def execute(self, batch: list[Sequence]) -> Any:
        return self.executor.execute(batch)


PARTS = Parts(engine=BlockingEngine)
