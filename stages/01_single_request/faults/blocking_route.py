"""The route blocks the event loop for a whole pass.

A coroutine calls the executor directly. The call waits for a reply from the pipe, and while it waits the event loop
does nothing else.

A user sees: while one prompt is being answered nobody else is even greeted: no new connection, no `/health`.

Seen in the wild: any `async def` route that calls a blocking model API. Load balancers take such a server out of
rotation exactly when it works hardest, because its health check times out.
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
