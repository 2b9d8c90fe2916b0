"""A stage in a process of its own: start it on a free port, wait until it is healthy, and end it, whatever happens.

The command-line tool, the tests and the benchmarks all start their servers here. Every wait is bounded.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpx

from .catalog import ROOT, find_stage
from .errors import StageFailed

START_SECONDS = 120.0
"""a stage that is not healthy by then has failed"""
STOP_SECONDS = 10.0
"""from SIGTERM to SIGKILL"""
ADDRESS = re.compile(r"^.+: (http://\S+)$")


@dataclass
class Server:
    """A running stage."""

    stage: str
    process: "subprocess.Popen[str]"
    url: str = ""
    client: httpx.Client = field(default_factory=httpx.Client)
    """with `url` as its base; it takes no proxy from the environment"""
    _lines: "deque[str]" = field(default_factory=lambda: deque(maxlen=1000))
    _readers: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """The web process."""
        return self.process.pid

    def stderr(self) -> str:
        """The last thousand lines that the stage wrote to stderr so far; complete once it has ended."""
        if self.process.poll() is not None:
            for reader in self._readers:
                reader.join(1)
        return "".join(self._lines)

    def stats(self) -> dict[str, object]:
        """The counters behind `GET /stats`."""
        return self.client.get("/stats").raise_for_status().json()


@contextmanager
def running_stage(
    stage: str,
    *flags: str,
    fault: str | None = None,
    env: dict[str, str] | None = None,
    start_seconds: float = START_SECONDS,
    quick: bool = True,
) -> Iterator[Server]:
    """Serve a stage ("01", "01_single_request", ...) for the length of a `with` block.

    `flags` go to the stage, `env` is added to this process's environment. A stage that would make itself fast first is
    told not to, unless `quick` is false or `FLO_FAST` is set. Raises `StageFailed` if it does not get
    healthy in time, `Unknown` if there is no such stage. At the end the stage gets SIGTERM, and SIGKILL, with
    its children, if that does not end it within `STOP_SECONDS`.
    """
    at_once = find_stage(stage).quick if quick and "FLO_FAST" not in os.environ else ()
    command = stage_command(stage, "--port", "0", *at_once, *flags, *(["--fault", fault] if fault else []))
    process = subprocess.Popen(
        command,
        env=stage_environment() | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C is for us; we then end the stage, and can end its children too
    )
    server = Server(stage, process)
    try:
        _await_address(server, time.monotonic() + start_seconds)
        yield server
    finally:
        try:
            _stop(server)
        finally:
            server.client.close()


def stage_command(stage: str, *flags: str) -> list[str]:
    """The command line that serves a stage."""
    return [sys.executable, "-m", f"stages.{find_stage(stage).name}", *flags]


def stage_environment() -> dict[str, str]:
    """This process's environment, with the repository on the import path; paths in flags stay relative to here."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT)}


def _await_address(server: Server, deadline: float) -> None:
    """Learn the URL from stdout, then poll `/health` there."""
    told = threading.Event()  # the address, or the end of stdout

    def read_stdout() -> None:
        assert server.process.stdout
        with server.process.stdout as lines:
            for line in lines:
                if not server.url and (match := ADDRESS.match(line.strip())):
                    server.url = match[1]
                    told.set()
        told.set()

    def read_stderr() -> None:
        assert server.process.stderr
        with server.process.stderr as lines:
            server._lines.extend(lines)

    server._readers = [threading.Thread(target=read, daemon=True) for read in (read_stdout, read_stderr)]
    for reader in server._readers:
        reader.start()
    if not told.wait(max(0.0, deadline - time.monotonic())):
        raise _failed(server, "did not say where it listens in time")
    if not server.url:
        raise _failed(server, "ended before it listened")
    server.client = httpx.Client(base_url=server.url, timeout=60, trust_env=False)
    while True:
        with suppress(httpx.TransportError):
            if server.client.get("/health", timeout=2).is_success:
                return
        if server.process.poll() is not None:
            raise _failed(server, "ended before it was healthy")
        if time.monotonic() > deadline:
            raise _failed(server, "was not healthy in time")
        time.sleep(0.02)


def _failed(server: Server, what: str) -> StageFailed:
    with suppress(subprocess.TimeoutExpired):
        server.process.wait(1)  # so that stderr is complete, where it is about to be
    return StageFailed(f"stage {server.stage} {what}", server.stderr())


def _stop(server: Server) -> None:
    process = server.process
    try:
        process.terminate()
        process.wait(STOP_SECONDS)
    except BaseException as exc:  # it does not end, or a second Ctrl-C: no more patience
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)
        if not isinstance(exc, subprocess.TimeoutExpired):
            raise
    finally:
        for reader in server._readers:
            reader.join(1)
