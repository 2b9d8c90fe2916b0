"""The id that a client gives its request is used as it is.

Two requests that are under way with the same id share one entry in the table of those who wait, and the second takes
the place of the first.

A user sees: behind a proxy that sends a request twice, or with two clients that both count from 1, one gets the other's
tokens and the other gets nothing.

Seen in the wild: vLLM issue 10583: a duplicate request id took the engine down.
"""

from ..engine import Engine
from ..errors import Refused
from ..parts import Parts

TEST = "tests/stage_07/test_server.py::test_two_requests_may_have_the_same_id"
MESSAGE = "two requests with one id got each other's tokens"


class TakesTheClientsId(Engine):
    def internal_id(self, request_id: str | None) -> str:
        return request_id or super().internal_id(None)


class RefusesTheSecond(TakesTheClientsId):
    def internal_id(self, request_id: str | None) -> str:
        if request_id and any(key.startswith(f"{request_id}-") for key in self.open):
            raise Refused(f"X-Request-Id: {request_id} is under way")
        return super().internal_id(request_id)


PARTS = Parts(engine=TakesTheClientsId)


class RefuseTheSecond:
    """Tempting: one of them has to go. But an id is for finding a request in a log; it says nothing about another's."""

    PARTS = Parts(engine=RefusesTheSecond)
    TEST = TEST
    MESSAGE = "a request was refused for what another client calls its own"


NAIVE_FIXES = {"refuse_the_second": RefuseTheSecond}
