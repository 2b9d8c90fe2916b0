"""Carries out what the policy decides: loads, calls and frees workers, each on its worker's own thread.

All bookkeeping happens on the event loop, so nothing here needs a lock. Knows no framework and no HTTP. A load, a call
or an eviction runs to its end even if everybody who asked for it has gone.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from copy import copy
from typing import Any, TypeVar

from .errors import EngineDead, LoadFailed, ServingError, WorkerFailed, WorkerLost
from .lru import Entry, Lru, State
from .registry import Metadata
from .trace import Tracer
from .worker import Worker

T = TypeVar("T")


class Residency:
    """The models in memory. The policy's record is the only one of who they are."""

    def __init__(self, policy: Lru, workers: Mapping[str, type[Worker]], device: str, trace: Tracer) -> None:
        self.policy = policy
        self.workers = workers
        self.device = device
        self.trace = trace
        self.counts: Counter[str] = Counter(hits=0, misses=0, loads=0, failed_loads=0, evictions=0)
        self.load_seconds = 0.0
        self.closing = False
        self._change = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(self, metadata: Metadata, work: Callable[[Worker], T], request_id: str) -> T:
        """What `work` returns for the model's worker, which is loaded first if need be. Raises a `ServingError`."""
        entry = await self.admit(metadata, request_id)
        return await asyncio.shield(self.spawn(self.run(entry, work)))

    async def admit(self, metadata: Metadata, request_id: str) -> Entry:
        """A counted place among the calls of this model. Raises `LoadFailed` before anything is evicted."""
        missed = False
        while not self.closing:
            worker = None if metadata.id in self.policy.entries else await self.validate(metadata)
            decision = self.policy.request(metadata.id)
            missed = missed or decision.load or not decision.entry
            if decision.victim:
                self.trace.instant("evict", request_id=request_id, model=decision.victim.model_id)
                self.spawn(self.evict(decision.victim))
            if decision.load and decision.entry and worker:
                self.spawn(self.load(decision.entry, worker, request_id))
            if decision.entry:
                self.counts["misses" if missed else "hits"] += 1
                return decision.entry
            await self.change()
        raise EngineDead("the server is closing")

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
            entry.worker = worker
            self.policy.loaded(entry)
            self.counts["loads"] += 1
        except ServingError as exc:
            await self.free(worker)
            self.counts["failed_loads"] += 1
            entry.error = exc if isinstance(exc, LoadFailed | WorkerLost) else worker.failed(exc.message)
            self.policy.remove(entry)
        self.load_seconds += time.monotonic() - began
        self.changed()

    async def run(self, entry: Entry, work: Callable[[Worker], T]) -> T:
        """One call, from the end of the load to the release of the worker."""
        try:
            await self.until(lambda: entry.state is not State.LOADING)
            if entry.error:
                raise copy(entry.error)
            return await self.on_thread(entry.worker, work, entry.worker)
        except WorkerLost:
            if entry.state is State.READY:  # a new worker has to be built for whoever comes next
                self.policy.retire(entry)
                self.spawn(self.evict(entry))
            raise
        finally:
            self.policy.release(entry)
            self.changed()

    async def evict(self, entry: Entry) -> None:
        """Free a model that takes no new calls, once its last call has ended."""
        await self.until(lambda: entry.calls == 0)
        with self.trace.span("free", model=entry.model_id):
            await self.free(entry.worker)
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
