"""The process on the far side of the pipe: how it starts, its loop, and how it ends.

Knows pipes and processes, nothing of models: the worker class arrives as an import path and is resolved here, so
that the web process never loads it. A child ends when its pipe closes or its parent is gone, however that happened.
"""

import multiprocessing
import os
import signal
import socket
import struct
import threading
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import Any

from .trace import Event, Tracer

JOIN_SECONDS = 10.0
"""for a killed process to be gone; one that is stuck in a driver never is, and is left to the system"""
RECEIVE_SECONDS = 10
"""for the rest of a message whose beginning is there"""


class Unusable(Exception):
    """A worker cannot be built from its settings, and trying again would not help."""


@dataclass
class Child:
    """The parent's hold on a child: the process, and this end of the pipe.

    Through the pipe go `(call_id, batch)` and, back, `(tag, call_id, payload, events)`. The tag is "complete" or
    "failed"; before the first call comes one "ready", "unusable" or "broken".
    """

    process: BaseProcess
    connection: Any  # multiprocessing's Connection

    def kill(self) -> None:
        """End the process at once, stopped or busy as it may be."""
        self.process.kill()
        self.process.join(JOIN_SECONDS)


def spawn(worker: str, model: str, device: str, traced: bool) -> Child:
    """Start a child that builds `worker` (`"package.module:Class"`) and serves it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_main, args=(theirs, worker, model, device, traced), daemon=True)
    process.start()
    theirs.close()
    with socket.socket(fileno=os.dup(ours.fileno())) as pipe:
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", RECEIVE_SECONDS, 0))
    return Child(process, ours)


def _main(connection: Any, worker: str, model: str, device: str, traced: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or torch's threads spin away the cores that others need
    events: list[Event] = []
    trace = Tracer(events.append if traced else None, process="child")
    module, name = worker.split(":")
    try:
        player = getattr(import_module(module), name).load(model, device, trace)
    except Exception as exc:
        known = isinstance(exc, Unusable)
        connection.send(("unusable" if known else "broken", 0, str(exc) if known else repr(exc), []))
        return
    connection.send(("ready", 0, None, []))
    while True:
        try:
            call_id, batch = connection.recv()
        except EOFError:
            return
        try:
            tag, payload = "complete", player.execute(batch)
        except Exception as exc:
            tag, payload = "failed", repr(exc)
        connection.send((tag, call_id, payload, events))
        events.clear()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)
