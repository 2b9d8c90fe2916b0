"""Apps in process and gates into children: what tests use to see a server work, without sleeping.

httpx's ASGI transport buffers whole responses, so apps run under a real uvicorn, in a thread, on a free port.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import httpx
import uvicorn

ROOT = Path(__file__).resolve().parents[1]
T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, seconds: float = 60) -> T:
    """What `look` returns once that is true; each look takes its own time. The bound is for what never comes."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        if time.monotonic() > end:
            raise AssertionError(f"never saw {what}")
    return seen


def wait_for(client: httpx.Client, **counters: int) -> dict[str, Any]:
    """`/stats` once its counters have these values."""
    stats: dict[str, Any] = {}

    def look() -> bool:
        stats.update(client.get("/stats").json())
        return all(stats[name] == value for name, value in counters.items())

    eventually(look, f"{counters} in /stats")
    return stats


def wait_healthy(client: httpx.Client) -> None:
    """Return once a request would be served."""
    eventually(lambda: client.get("/health").status_code == 200, "a healthy server")


class Raw:
    """A request by hand, over a connection that hangs up when the block ends."""

    def __init__(self, client: httpx.Client, path: str, body: bytes) -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self.connection = socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=60)
        self.connection.sendall(head.encode() + b"\r\n\r\n" + body)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def read_until(self, mark: bytes) -> bytes:
        """All that has come of the answer, once `mark` is in it."""
        answer = b""
        while mark not in answer:
            piece = self.connection.recv(4096)
            assert piece, f"the answer ended without {mark!r}: {answer!r}"
            answer += piece
        return answer


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
        self._listener.settimeout(60)
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
