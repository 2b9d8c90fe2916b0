"""The parent's end of the pipe: sends batches to the child, matches replies by id, replaces a child that is lost.

Knows processes and deadlines, nothing of HTTP. `execute` may be called from many threads at once. One thread of
its own reads the replies and supervises: a child that dies, or whose pass exceeds its deadline, fails its callers
at once and is replaced, after a pause that doubles with every loss until a pass succeeds again.
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


class ChildLost(Exception):
    """The child died or hung; the message says which."""


class Executor:
    """Runs batches on a supervised child.

    `ready` is set while a batch would be accepted. `on_fatal` is called when it gives up; `failure` then says why.
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
        self._pending: dict[int, Future[Any]] = {}  # calls in the pipe, oldest first: the child takes them in order
        self._pass_began = 0.0  # when the child took up the oldest of them
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
        self._settled.wait()
        if self.failure:
            raise EngineDead(self.failure)

    def execute(self, batch: list[Any]) -> Any:
        """Run one batch and wait for what the worker returns. Raises `EngineDead` or `WorkerFailed`."""
        request_ids = [sequence.request_id for sequence in batch]
        with self._lock:
            child = self._child
            if not child or not self.ready.is_set():
                raise EngineDead(self.failure or "the model is being restarted", retry_after=1)
            call_id, future = next(self._ids), Future()
            if not self._pending:
                self._pass_began = time.monotonic()
            self._pending[call_id] = future
        self.trace.instant("into the pipe", request_ids=request_ids, call_id=call_id)
        try:
            with self._sending:
                child.connection.send((call_id, batch))
        except OSError:
            pass  # the supervisor sees the same broken pipe, and fails this call with the reason
        except Exception as exc:  # what cannot be pickled has not been sent
            self.deliver(call_id, "failed", repr(exc))
        payload = self.await_reply(future)
        self.trace.instant("out of the pipe", request_ids=request_ids, call_id=call_id)
        return payload

    def close(self) -> None:
        """End the child and fail whoever still waits. Leaves no process and no thread behind."""
        self._closing.set()
        with self._lock:
            if self._child:
                self._child.process.kill()
        if self._supervisor.ident:
            self._supervisor.join()

    def await_reply(self, future: "Future[Any]") -> Any:
        """Wait for the reply that this call's future stands for."""
        return future.result()

    def deliver(self, call_id: int, tag: str, payload: Any) -> None:
        """Give a reply to the call whose id it carries."""
        with self._lock:
            future = self._pending.pop(call_id)
            self._pass_began = time.monotonic()
            self._losses = 0
        if tag == "complete":
            future.set_result(payload)
        else:
            future.set_exception(WorkerFailed(payload))

    def abandon(self, calls: "list[Future[Any]]", reason: str) -> None:
        """Answer the calls that were with a child that is lost."""
        for future in calls:
            future.set_exception(EngineDead(reason, retry_after=1))

    def overdue(self) -> bool:
        """Whether the pass that the child is in has exceeded its deadline."""
        with self._lock:
            return bool(self._pending) and time.monotonic() - self._pass_began >= self.deadline

    def _supervise(self) -> None:
        starts = 0
        while not self._closing.is_set() and not self.failure:
            starts, reason = starts + 1, ""
            try:
                child = self._spawn()
                with self._lock:
                    self._child = child
                try:
                    self._await_ready(child)
                    starts = 0
                    self._read_replies(child)
                finally:
                    child.kill()
            except (ChildLost, EOFError, OSError) as exc:
                reason = str(exc) or "the process that runs the model died"
            with self._lock:
                calls, self._pending = list(self._pending.values()), {}
                self.ready.clear()
                self._child, self._losses = None, self._losses + 1
                if starts == MAX_STARTS:
                    self.failure = f"the model's process was lost {starts} times while starting: {reason}"
            self.abandon(calls, self.failure or reason)
            if not self.failure:
                self._closing.wait(min(5.0, 0.05 * 2**self._losses))
        self._settled.set()
        if self.failure:
            self.on_fatal()

    def _await_ready(self, child: Child) -> None:
        if not child.connection.poll(START_DEADLINE):
            raise ChildLost(f"the model was not loaded within {START_DEADLINE:g} s")
        tag, _, reason, _ = child.connection.recv()
        if tag == "unusable":
            self.failure = reason
        if tag != "ready":
            raise ChildLost(reason)
        self.ready.set()
        self._settled.set()

    def _read_replies(self, child: Child) -> None:
        while True:
            with self._lock:
                began = self._pass_began if self._pending else time.monotonic()
            if child.connection.poll(max(0.0, began + self.deadline - time.monotonic())):
                tag, call_id, payload, events = child.connection.recv()
                self.trace.replay(events)
                self.deliver(call_id, tag, payload)
            elif self.overdue():
                raise ChildLost(f"a pass took longer than the deadline of {self.deadline:g} s; its process was ended")
