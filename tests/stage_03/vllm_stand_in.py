"""A stand-in for `vllm serve`: as much of its HTTP API as the gateway uses, over real HTTP, answering as scripted."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.serving import serving

TEXT = " 3 4 5 6 7 8 9"
MODELS, COMPLETIONS = "/v1/models", "/v1/completions"


class StandIn:
    """Its script is `replies`: status and body by path."""

    url = ""

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Forget what was asked; answer every request at once, and well."""
        self.asked: list[dict[str, Any]] = []
        """the bodies of all completion requests so far"""
        self.replies = {
            MODELS: (200, json.dumps({"data": [{"id": "stand-in"}, {"id": "its-adapter"}]}).encode()),
            COMPLETIONS: (200, json.dumps({"choices": [{"text": TEXT}]}).encode()),
        }
        self.held: str | None = None
        """the path whose callers wait"""
        self.arrived, self.released, self.hung_up = threading.Event(), threading.Event(), threading.Event()

    @contextmanager
    def holding(self, path: str = COMPLETIONS) -> Iterator[None]:
        """Whoever asks at `path` waits. `arrived` is set when somebody does, `hung_up` when they leave."""
        self.held = path
        try:
            yield
        finally:
            self.held = None
            self.released.set()

    async def reply(self, request: Request) -> Response:
        path = request.url.path
        if path == COMPLETIONS:
            self.asked.append(await request.json())
        if path == self.held:
            await self.hold(request)
        status, body = self.replies[path]
        return Response(body, status, media_type="application/json")

    async def hold(self, request: Request) -> None:
        await request.body()
        released = asyncio.ensure_future(asyncio.to_thread(self.released.wait, 60))
        gone = asyncio.ensure_future(request.receive())
        self.arrived.set()
        await asyncio.wait({released, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self.hung_up.set()
        gone.cancel()


@contextmanager
def vllm_stand_in() -> Iterator[StandIn]:
    """Serve a stand-in until the block ends."""
    stand_in = StandIn()
    app = Starlette(routes=[Route(MODELS, stand_in.reply), Route(COMPLETIONS, stand_in.reply, methods=["POST"])])
    with serving(app) as client:
        stand_in.url = str(client.base_url)
        yield stand_in
