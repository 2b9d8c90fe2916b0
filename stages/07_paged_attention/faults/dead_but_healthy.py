"""The health check asks whether the API server answers, and an API server without an engine answers very well.

Server and engine are two processes. Only the engine can serve a request, and only the server can be asked.

A user sees: the load balancer goes on sending requests to a machine that answers each with an error.

Seen in the wild: vLLM issues 21728 and 39863: a dead engine behind a /health of 200.
"""

from ..async_client import AsyncClient
from ..parts import Parts

TEST = "tests/stage_07/test_cores.py::test_health_tells_of_a_core_that_is_gone"
MESSAGE = "a server without a core says that it is healthy"


class AnswersSoItIsWell(AsyncClient):
    def states(self) -> list[str]:
        return ["ready"] * len(self.router.loads)


class LooksAtTheThread(AsyncClient):
    def states(self) -> list[str]:
        alive = self._thread is not None and self._thread.is_alive()
        return ["ready" if alive else "restarting"] * len(self.router.loads)


PARTS = Parts(client=AnswersSoItIsWell)


class LookAtTheThread:
    """Tempting: the thread that watches the cores must be alive. It is; it has just seen one die."""

    PARTS = Parts(client=LooksAtTheThread)
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"look_at_the_thread": LookAtTheThread}
