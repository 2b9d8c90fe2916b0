"""Apps in process and gates into children: what tests use to see a server work, without sleeping.

httpx's ASGI transport buffers whole responses, so apps run under a real uvicorn, in a thread, on a free port.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import httpx
import uvicorn


class Stage:
    """A stage's modules as attributes: `Stage("01_single_request").engine.Engine`. Its name is no identifier."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, module: str) -> ModuleType:
        return import_module(f"stages.{self._name}.{module}")


@contextmanager
def serving(app: Any) -> Iterator[httpx.Client]:
    """Serve an app until the block ends; yields a client for it. Every wait is bounded."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            with httpx.Client(base_url=url, timeout=60) as client:
                client.get("/health")  # the socket accepts at once; the answer comes when the app has started
                yield client
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive(), "the server did not stop"


class Gate:
    """Holds a scripted worker, in whatever process, until the test lets it go. Leaving the block lets all go."""

    def __enter__(self) -> "Gate":
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.settimeout(30)
        self.port: int = self._listener.getsockname()[1]  # where a worker knocks
        self._held: list[socket.socket] = []
        return self

    def __exit__(self, *_: object) -> None:
        self.open_for_good()

    def open_for_good(self) -> None:
        """Let go whoever stands at the gate, and hold nobody any more."""
        self._listener.close()
        self.open()

    def wait(self) -> None:
        """Wait until one more worker stands at the gate."""
        self._held.append(self._listener.accept()[0])

    def open(self) -> None:
        """Let go whoever stands at the gate."""
        for held in self._held:
            held.close()
        self._held.clear()

    @staticmethod
    def knock(port: int) -> None:
        """Called by the worker: return when the test opens the gate, or has gone."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
            connection.recv(1)
