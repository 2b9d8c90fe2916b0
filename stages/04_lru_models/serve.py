"""From an app to a listening server and back: port, signals, exit status.

The port is bound first, so that one in use fails at once; the model is loaded next; only then does the server
listen. SIGINT and SIGTERM end it cleanly at any moment, a second one at once.
"""

import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import uvicorn
from fastapi import FastAPI

from .errors import EngineDead

GRACE = 3
"""seconds that running requests get when the server is told to stop; then their engine fails them, with a reason"""


class Server(uvicorn.Server):
    """uvicorn, but who still waits at the end is told so instead of being cut off."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], object]) -> None:
        super().__init__(config)
        self.close = close

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal ends the grace; uvicorn would cut off who still waits without a word."""
        if self.should_exit:
            threading.Thread(target=self.close).start()
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        closing = threading.Timer(GRACE, self.close)
        closing.start()
        try:
            await super().shutdown(sockets)
        finally:
            closing.cancel()


def serve(app: FastAPI, host: str, port: int) -> NoReturn:
    """Serve until told to stop, then exit: 0 after a signal, 1 with one line on stderr when the model is lost."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    engine = app.state.engine
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        # asyncio sets TCP_NODELAY only on sockets that say they are TCP; without it small answers wait 40 ms
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE + 2)
        server = Server(config, engine.close)
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
        sys.exit(f"error: {engine.failure}" if engine.failure else 0)
