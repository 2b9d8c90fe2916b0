"""Where the worker lives: in the engine core's process ("uni"), or in one of its own ("mp"), the path's third process.

In its own process the worker is on the far side of a pipe: rows go in, results come out, trace events ride along.
"""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

from .config import EngineConfig, Unusable
from .core_parts import CoreParts, resolve
from .limits import Limits
from .step import Result, Row
from .trace import Event, Tracer


class WorkerDied(Exception):
    """The worker's process or its device is gone, and with it the model and the cache."""


class StepFailed(Exception):
    """The worker lives, but raised on these rows."""


class UniProcExecutor:
    """The worker is an object. `limits` and `stop_token_ids` are what the rest of the engine must know of it."""

    def __init__(self, config: EngineConfig, parts: CoreParts, trace: Tracer) -> None:
        self.worker = resolve(parts.worker).load(config, parts, trace)
        self.limits: Limits = self.worker.limits
        self.stop_token_ids: list[int] = self.worker.stop_token_ids

    def execute(self, rows: list[Row]) -> Result:
        """Run one step. Raises `StepFailed` or `WorkerDied`."""
        try:
            return self.worker.execute(rows)
        except WorkerDied:
            raise
        except Exception as exc:
            raise StepFailed(repr(exc)) from exc

    def close(self) -> None:
        """There is nothing to end."""


class MultiprocExecutor:
    """The worker is a process. Through the pipe: rows, and back `(tag, payload, events)`."""

    def __init__(self, config: EngineConfig, parts: CoreParts, trace: Tracer) -> None:
        self.trace = trace
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_main, args=(theirs, config, parts), daemon=True)
        self.process.start()
        theirs.close()
        try:
            self.limits, self.stop_token_ids = self.receive()
        except BaseException:
            self.close()
            raise

    def execute(self, rows: list[Row]) -> Result:
        """Run one step. Raises `StepFailed` or `WorkerDied`."""
        with suppress(OSError):  # then there is no answer either
            self.connection.send(rows)
        return self.receive()

    def receive(self) -> Any:
        """The payload of the next message. Raises what its tag says."""
        try:
            tag, payload, events = self.connection.recv()
        except (EOFError, OSError) as exc:
            raise WorkerDied("the worker's process died") from exc
        self.trace.replay(events)
        if tag == "done":
            return payload
        raise {"failed": StepFailed, "unusable": Unusable, "broken": WorkerDied}[tag](payload)

    def close(self) -> None:
        """Leave no process behind."""
        self.process.kill()
        self.process.join()
        self.connection.close()


Executor = UniProcExecutor | MultiprocExecutor


def load(config: EngineConfig, parts: CoreParts, trace: Tracer) -> Executor:
    """The executor that `--distributed-executor-backend` names, its model loaded. Raises `Unusable`."""
    kind = UniProcExecutor if config.distributed_executor_backend == "uni" else MultiprocExecutor
    return kind(config, parts, trace)


def settle_in() -> None:
    """What every process of the engine does first: leave signals to the parent, and end when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or torch's threads spin away the cores that others need;
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # but a step has hundreds of parts: from one to the next they may
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # or its compiler keeps processes of its own about
    if parent := multiprocessing.parent_process():

        def end_with_parent() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end_with_parent, name="end-with-parent", daemon=True).start()


def _main(connection: Any, config: EngineConfig, parts: CoreParts) -> None:
    settle_in()
    events: list[Event] = []
    trace = Tracer(events.append if config.trace else None, process="worker")
    try:
        worker = resolve(parts.worker).load(config, parts, trace)
        connection.send(("done", (worker.limits, worker.stop_token_ids), events))
    except Exception as exc:
        connection.send(("unusable", str(exc), []) if isinstance(exc, Unusable) else ("broken", repr(exc), []))
        return
    while True:
        events.clear()
        try:
            rows = connection.recv()
        except EOFError:
            return
        try:
            tag, payload = "done", worker.execute(rows)
        except WorkerDied as exc:
            tag, payload = "broken", str(exc)
        except Exception as exc:
            tag, payload = "failed", repr(exc)
        connection.send((tag, payload, events))
