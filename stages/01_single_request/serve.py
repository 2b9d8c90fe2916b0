"""From an app to a listening server and back: port, signals, exit status.

The port is bound first, so that one in use fails at once; the model is loaded next; only then does the server
listen. SIGINT and SIGTERM end it cleanly at any moment, a second one at once.
"""

import asyncio
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import EngineDead

GRACE = 3
"""seconds that running requests get when the server is told to stop; then their engine fails them, with a reason"""


class Door:
    """Between uvicorn and the app: lets HEAD in as GET, and at the end waits no longer for the rest of a request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.closed = False
        self.arriving: set[asyncio.Task[Any]] = set()  # requests that are waiting for a part of their body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":  # uvicorn leaves the body out
            scope = {**scope, "method": "GET"}
        request, complete = asyncio.current_task(), scope["type"] != "http"

        async def receive_part() -> Message:
            nonlocal complete
            if complete or not request:
                return await receive()
            self.arriving.add(request)
            try:
                message = await receive()
            except asyncio.CancelledError:
                if not self.closed:
                    raise
                raise HTTPException(503, "the server is closing") from None
            finally:
                self.arriving.discard(request)
            complete = not message.get("more_body")
            return message

        await self.app(scope, receive_part, send)

    def close(self) -> None:
        """Refuse whoever has not sent its whole request. May be called from any thread."""
        self.closed = True
        for request in list(self.arriving):
            request.get_loop().call_soon_threadsafe(self.refuse, request)

    def refuse(self, request: "asyncio.Task[Any]") -> None:
        """If it still waits."""
        if request in self.arriving:
            request.cancel()


class Server(uvicorn.Server):
    """uvicorn, but who still waits at the end is told so instead of being cut off."""

    def __init__(self, app: ASGIApp, close: Callable[[], object]) -> None:
        self.door, self.close = Door(app), close
        super().__init__(uvicorn.Config(self.door, log_level="warning", timeout_graceful_shutdown=GRACE + 2))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal ends the grace; uvicorn would cut off who still waits without a word."""
        if self.should_exit:
            threading.Thread(target=self.end_grace).start()
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        closing = threading.Timer(GRACE, self.end_grace)
        closing.start()
        try:
            await super().shutdown(sockets)
        finally:
            closing.cancel()

    def end_grace(self) -> None:
        """Tell whoever still waits."""
        self.door.close()
        self.close()


def serve(app: FastAPI, host: str, port: int) -> NoReturn:
    """Serve until told to stop, then exit: 0 after a signal, 1 with one line on stderr when the model is lost."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    engine = app.state.engine
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        # asyncio sets TCP_NODELAY only on sockets that say they are TCP; without it small answers wait 40 ms
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server = Server(app, engine.close)
        engine.on_fatal(lambda: setattr(server, "should_exit", True))
        try:
            listener.bind((host, port))
            engine.start()
            listener.listen()  # before the address is told
            shown = f"[{host}]" if ":" in host else host
            print(f"{app.title}: http://{shown}:{listener.getsockname()[1]}", flush=True)
            server.run(sockets=[listener])
        except (OSError, OverflowError) as exc:
            sys.exit(f"error: cannot listen on {host}:{port}: {exc}")
        except EngineDead as exc:
            sys.exit(f"error: {exc}")
        except KeyboardInterrupt:
            sys.exit(0)
        finally:
            engine.close()
            gc.freeze()  # or the interpreter's end takes seconds: it looks for cycles in all that torch has defined
        sys.exit(f"error: {engine.failure}" if engine.failure else 0)
