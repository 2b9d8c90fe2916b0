"""Carries out what the policy decides: loads workers, opens a queue in front of each, and frees them.

All bookkeeping happens on the event loop, so nothing here needs a lock. Knows no framework and no HTTP. A load or an
eviction runs to its end even if everybody who asked for it has gone. Whoever is admitted gets a `Pin`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from copy import copy
from typing import Any, Protocol, TypeVar

from .errors import EngineDead, LoadFailed, ServingError, WorkerFailed, WorkerLost
from .lru import Entry, Lru, NoIdleModel, State
from .registry import Metadata
from .trace import Tracer
from .worker import Worker

T = TypeVar("T")


class Queue(Protocol):
    """What stands in front of a worker: inputs that wait for a pass, or streams."""

    worker: Any

    def drain(self) -> None:
        """The worker is about to go: finish what is here, soon."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class Pin:
    """One stream's or prediction's hold on its model. As long as it is held, the model stays."""

    def __init__(self, residency: "Residency", entry: Entry) -> None:
        self.residency = residency
        self.entry = entry
        self.held = True

    def release(self) -> None:
        """Let go. Harmless once it is released: more than one end of a stream may come to that."""
        if self.held:
            self.held = False
            self.residency.policy.unpin(self.entry)
            self.residency.changed()


class Residency:
    """The models in memory. The policy's record is the only one of who they are."""

    def __init__(
        self,
        policy: Lru,
        workers: Mapping[str, type[Worker]],
        device: str,
        queue_for: Callable[[Worker, Callable[..., Any]], Any],
        trace: Tracer,
    ) -> None:
        self.policy = policy
        self.workers = workers
        self.device = device
        self.queue_for = queue_for
        self.trace = trace
        self.counts: Counter[str] = Counter(hits=0, misses=0, loads=0, failed_loads=0, evictions=0, refused_busy=0)
        self.load_seconds = 0.0
        self.closing = False
        self._change = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(self, metadata: Metadata, work: Callable[[Any], Awaitable[T]], request_id: str) -> T:
        """What `work` returns for the model's queue, with the model pinned until then. Raises a `ServingError`."""
        pin = await self.admit(metadata, request_id)
        try:
            return await work(await self.loaded(pin))
        except WorkerLost:
            if pin.entry.state is State.READY:  # a new worker has to be built for whoever comes next
                self.policy.retire(pin.entry)
                self.spawn(self.evict(pin.entry))
            raise
        finally:
            pin.release()

    async def admit(self, metadata: Metadata, request_id: str) -> Pin:
        """A pin on the model, which is on its way if it was not there. The caller has to release it.

        Raises `NoIdleModel`, or `LoadFailed` before anything is evicted.
        """
        missed = False
        while not self.closing:
            worker = None if metadata.id in self.policy.entries else await self.validate(metadata)
            try:
                decision = self.policy.request(metadata.id)
            except NoIdleModel:
                self.counts["refused_busy"] += 1
                raise
            missed = missed or decision.load or not decision.entry
            if decision.victim:
                self.trace.instant("evict", request_id=request_id, model=decision.victim.model_id)
                self.spawn(self.evict(decision.victim))
            if decision.load and decision.entry and worker:
                self.spawn(self.load(decision.entry, worker, request_id))
            if decision.entry:
                self.counts["misses" if missed else "hits"] += 1
                return Pin(self, decision.entry)
            await self.change()
        raise EngineDead("the server is closing")

    async def loaded(self, pin: Pin) -> Any:
        """The queue of a pinned model, once it is there. Raises the error of a load that failed."""
        await self.until(lambda: pin.entry.state is not State.LOADING)
        if pin.entry.error:
            raise copy(pin.entry.error)
        return pin.entry.worker

    async def validate(self, metadata: Metadata) -> Worker:
        """A worker that has loaded nothing yet, but probably can. Raises `LoadFailed`."""
        kind = self.workers.get(metadata.framework)
        if not kind:
            known = ", ".join(self.workers)
            raise LoadFailed(
                f"{metadata.name} cannot be loaded: no framework {metadata.framework!r} (there are {known})"
            )
        worker = kind(metadata, self.device)
        try:
            await self.on_thread(worker, worker.check)
        except WorkerFailed as exc:
            raise worker.failed(exc.message) from None
        return worker

    async def load(self, entry: Entry, worker: Worker, request_id: str) -> None:
        """Load when there is room for it. A load that fails leaves no entry."""
        await self.until(lambda: self.policy.may_load(entry))
        began = time.monotonic()
        try:
            with self.trace.span("load", request_id=request_id, model=worker.metadata.name):
                await self.on_thread(worker, worker.load)
            entry.worker = self.open_queue(worker)
            self.policy.loaded(entry)
            self.counts["loads"] += 1
        except ServingError as exc:
            await self.free(worker)
            self.counts["failed_loads"] += 1
            entry.error = exc if isinstance(exc, LoadFailed | WorkerLost) else worker.failed(exc.message)
            self.policy.remove(entry)
        self.load_seconds += time.monotonic() - began
        self.changed()

    def open_queue(self, worker: Worker) -> Queue:
        """What stands in front of a worker that has just been loaded."""
        return self.queue_for(worker, self.on_thread)

    async def evict(self, entry: Entry) -> None:
        """Free a model that takes no new calls, once nobody holds it."""
        queue: Queue = entry.worker
        queue.drain()
        await self.until(lambda: entry.pins == 0)
        queue.close()
        with self.trace.span("free", model=entry.model_id):
            await self.free(queue.worker)
        self.counts["evictions"] += 1
        self.policy.remove(entry)
        self.changed()

    async def free(self, worker: Worker) -> None:
        """Have a worker give its memory back; if it says that it could not, there is nothing more to try."""
        try:
            await self.on_thread(worker, worker.free)
        except ServingError as exc:
            self.trace.instant("not freed", model=worker.metadata.name, error=exc.message)
        worker.thread.shutdown(wait=False)

    async def close(self, seconds: float) -> None:
        """Take no more calls, and free every model within so many seconds."""
        self.closing = True
        self.changed()
        for entry in self.policy.entries.values():
            if entry.state is State.READY:
                self.policy.retire(entry)
                self.spawn(self.evict(entry))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def on_thread(self, worker: Worker, work: Callable[..., T], *args: Any) -> T:
        """What `work` returns. Raises a `ServingError` whose traceback does not keep the model in memory."""
        result, error = await asyncio.get_running_loop().run_in_executor(worker.thread, attempt, work, *args)
        if error:
            raise error
        return result

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start what has to run to its end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may have gone
        return task

    def changed(self) -> None:
        """Something has: whoever waits for it should look again."""
        self._change.set()
        self._change = asyncio.Event()

    async def change(self) -> None:
        """Return after the next change."""
        await self._change.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when a condition holds."""
        while not condition():
            await self.change()


def attempt(work: Callable[..., Any], *args: Any) -> tuple[Any, ServingError | None]:
    """The result of a call, or its error stripped of all frames: their locals would keep an evicted model alive."""
    try:
        return work(*args), None
    except ServingError as exc:
        exc.__traceback__ = exc.__cause__ = exc.__context__ = None
        return None, exc
    except Exception as exc:
        return None, WorkerFailed(str(exc) or repr(exc))
