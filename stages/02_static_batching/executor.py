"""The parent's end of the pipe: sends batches to the child, matches replies by id, replaces a child that is lost.

Knows processes and deadlines, nothing of HTTP. `execute` may be called from many threads at once. One thread of
its own reads the replies and supervises: a child that dies, or whose pass exceeds its deadline, fails its callers
at once and is replaced, after a pause that doubles with every loss, up to five seconds, until a pass succeeds again.
"""

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .child import Child, spawn
from .errors import EngineDead, WorkerFailed
from .trace import Tracer

START_DEADLINE = 300.0
"""seconds that a child may take to load its model"""
MAX_STARTS = 3
"""a child that is lost this often in a row while starting is given up"""

CLOSING = "the server is closing"


class ChildLost(Exception):
    """The child is lost; the message says why, and `final` whether another one would be lost for the same reason."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Executor:
    """Runs batches on a supervised child.

    `ready` is set while a batch would be accepted. When the child is given up, `failure` says why and `on_fatal` is
    called.
    """

    def __init__(
        self,
        worker: str,
        model: str,
        device: str,
        deadline: float,
        trace: Tracer,
        spawn: Callable[[str, str, str, bool], Child] = spawn,
    ) -> None:
        self.deadline = deadline
        self.trace = trace
        self.ready = threading.Event()
        self.failure: str | None = None
        self.on_fatal: Callable[[], object] = lambda: None
        self._spawn = lambda: spawn(worker, model, device, trace.sink is not None)
        self._child: Child | None = None
        self._ids = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}  # calls in the pipe
        self._pass_began = 0.0  # when the child took up the one it is at
        self._losses = 0
        self._lock = threading.Lock()  # guards all of the above
        self._sending = threading.Lock()
        self._settled = threading.Event()  # the child is ready, or given up, for the first time
        self._closing = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="executor", daemon=True)

    def start(self) -> None:
        """Start the child and wait for its model. Raises `EngineDead` with the reason if it cannot be had."""
        if not self._supervisor.ident:
            self._supervisor.start()
        while not self._settled.wait(0.5):
            pass  # a wait without end could sleep through a signal that another thread has taken
        if self.failure or self._closing.is_set():
            raise EngineDead(self.failure or CLOSING)

    def submit(self, batch: list[Any]) -> "Future[Any]":
        """Send one batch to the child; a future for what its worker returns. Raises `EngineDead`."""
        with self._lock:
            child = self._child
            if not child or not self.ready.is_set():
                reason = CLOSING if self._closing.is_set() else self.failure or "the model is being restarted"
                raise EngineDead(reason, retry_after=1)
            call_id, future = next(self._ids), Future()
            if not self._pending:
                self._pass_began = time.monotonic()
            self._pending[call_id] = future
        try:
            with self._sending:
                child.connection.send((call_id, batch))
        except OSError:
            pass  # the supervisor sees the same broken pipe, and fails this call with the reason
        except Exception as exc:  # what cannot be pickled has not been sent
            self.deliver(call_id, "failed", repr(exc))
        return future

    def execute(self, batch: list[Any]) -> Any:
        """Run one batch and wait for what the worker returns. Raises `EngineDead` or `WorkerFailed`."""
        request_ids = [sequence.request_id for sequence in batch]
        self.trace.instant("into the pipe", request_ids=request_ids)
        payload = self.submit(batch).result()
        self.trace.instant("out of the pipe", request_ids=request_ids)
        return payload

    def close(self) -> None:
        """End the child and fail whoever still waits. Leaves no process and no thread behind."""
        self._closing.set()
        with self._lock:
            if self._child:
                self._child.process.kill()
        if self._supervisor.ident:
            self._supervisor.join()

    def deliver(self, call_id: int, tag: str, payload: Any) -> None:
        """Give a reply to the call whose id it carries."""
        with self._lock:
            future = self._pending.pop(call_id, None)
            self._pass_began = time.monotonic()
        if future and tag == "complete":
            self._losses = 0
            future.set_result(payload)
        elif future:
            future.set_exception(WorkerFailed(payload))

    def abandon(self, calls: "list[Future[Any]]", reason: str) -> None:
        """Answer the calls that were with a child that is lost."""
        for future in calls:
            future.set_exception(EngineDead(reason, retry_after=1))

    def remaining(self) -> float:
        """Seconds that the pass under way may still take."""
        with self._lock:
            now = time.monotonic()
            return (self._pass_began if self._pending else now) + self.deadline - now

    def give_up(self, reason: str) -> None:
        """Accept nothing any more, and tell `on_fatal`."""
        self.failure = reason
        self.ready.clear()
        self._settled.set()
        self.on_fatal()

    def _supervise(self) -> None:
        starts = 0
        while not self._closing.is_set() and not self.failure:
            starts, reason, final = starts + 1, "the process that runs the model died", False
            child = None
            try:
                child = self._spawn()
                with self._lock:
                    self._child = child
                    if self._closing.is_set():
                        child.process.kill()
                self._await_ready(child)
                starts = 0
                self._read_replies(child)
            except ChildLost as lost:
                reason, final = str(lost), lost.final
            except Exception as exc:  # a dead child's pipe ends, is reset, or holds half a reply
                self.trace.instant("child lost", reason=repr(exc))
            if self._closing.is_set():
                reason = CLOSING
            elif starts == MAX_STARTS:
                reason, final = f"the model's process was lost {starts} times while starting: {reason}", True
            with self._lock:
                self.ready.clear()
                calls, self._child, self._pending = list(self._pending.values()), None, {}
            self.abandon(calls, reason)
            if child:
                child.kill()  # which also frees a sender that waits for room in the pipe
                with self._sending:
                    child.connection.close()
            if final:
                self.give_up(reason)
            self._losses += 1
            self._closing.wait(min(5.0, 0.05 * 2 ** min(self._losses, 7)))
        self._settled.set()

    def _await_ready(self, child: Child) -> None:
        if not child.connection.poll(START_DEADLINE):
            raise ChildLost(f"the model was not loaded within {START_DEADLINE:g} s")
        tag, _, reason, _ = child.connection.recv()
        if tag != "ready":
            raise ChildLost(reason, final=tag == "unusable")
        self.ready.set()
        self._settled.set()

    def _read_replies(self, child: Child) -> None:
        while True:
            if child.connection.poll(max(0.0, self.remaining())):
                tag, call_id, payload, events = child.connection.recv()
                self.trace.replay(events)
                self.deliver(call_id, tag, payload)
            elif self.remaining() <= 0:
                raise ChildLost(f"a pass took longer than the deadline of {self.deadline:g} s; its process was ended")
