"""Whole processes: who there is, who descends from whom, and servers that the test itself starts and ends."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flo.servers import stage_environment

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 60
"""for a server to say where it listens, or to end"""


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process that is not a zombie, by id."""
    listing = subprocess.run(["ps", "-axwwo", "pid=,ppid=,command="], capture_output=True, text=True, check=True).stdout
    rows = [row for row in (line.split(None, 2) for line in listing.splitlines()) if len(row) == 3]
    return {int(pid): (int(parent), command) for pid, parent, command in rows if "<defunct>" not in command}


def descendants(pid: int) -> set[int]:
    """All processes that descend from `pid`."""
    tree, found, fresh = processes(), set(), {pid}
    while fresh:
        fresh = {child for child, (parent, _) in tree.items() if parent in fresh} - found
        found |= fresh
    return found


def the_child(pid: int) -> int:
    """The one process of a server that runs the model."""
    family = descendants(pid)
    [child] = [one for one, (_, command) in processes().items() if one in family and "spawn_main" in command]
    return child


def wait_gone(pids: set[int]) -> set[int]:
    """Those of `pids` that still run after many looks; `ps` itself takes the time."""
    left = pids
    for _ in range(500):
        left = pids & processes().keys()
        if not left:
            break
    return left


def scripted_stage(stage: str, *flags: str) -> list[str]:
    """The command line that serves a stage with its scripted worker, which needs no model."""
    return [sys.executable, "-m", "tests.served", stage, "--port", "0", *flags]


@contextmanager
def started(command: list[str], cwd: Path = ROOT, **environment: str) -> "Iterator[subprocess.Popen[str]]":
    """A process in a session of its own, which ends with the block."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=stage_environment() | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError, PermissionError):  # nobody of the session is left
                os.killpg(process.pid, signal.SIGKILL)


def address(process: "subprocess.Popen[str]") -> str:
    """Where a server says that it listens."""
    assert process.stdout
    told, _, _ = select.select([process.stdout], [], [], SECONDS)
    line = process.stdout.readline() if told else ""
    assert ": http://" in line, f"the server did not say where it listens, but {line!r}"
    return line.split()[-1]


def listens(host: str, port: int) -> bool:
    """Whether a connection is accepted there."""
    try:
        socket.create_connection((host, port)).close()
    except ConnectionRefusedError:
        return False
    return True
