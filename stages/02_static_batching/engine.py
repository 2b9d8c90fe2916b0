"""What the routes call: queues sequences, hands each caller a future, and drives the batch on a thread of its own.

Knows no tensors and no HTTP. The scheduler decides under a lock; the pass itself runs outside of it, so callers
can join and leave the queue meanwhile.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from copy import copy
from typing import Any

from .errors import EngineDead, QueueFull, Refused, ServingError, WorkerFailed
from .executor import Executor
from .scheduler import Scheduler
from .sequence import Completion, Refusal, Sequence
from .stats import Stats
from .trace import Tracer


class Engine:
    """One for the whole process, built once, before the server listens."""

    def __init__(
        self, executor: Executor, scheduler: Scheduler, trace: Tracer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self.trace = trace
        self.clock = clock
        self.stats = Stats(clock())
        self.callers: dict[str, tuple[Future[Any], float]] = {}  # by request id: who waits, and since when
        self.changed = threading.Condition()  # guards the scheduler and the callers
        self.closing = False
        self._driver = threading.Thread(target=self.drive, name="driver", daemon=True)

    def start(self) -> None:
        """Return once the model is ready. Raises `EngineDead` if it cannot be had."""
        self.executor.start()
        if not self._driver.ident:
            self._driver.start()

    def close(self) -> None:
        """Fail whoever waits, and stop."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        self.executor.close()
        if self._driver.ident:
            self._driver.join()

    def on_fatal(self, stop: Callable[[], object]) -> None:
        """Have `stop` called when the model is lost for good."""
        self.executor.on_fatal = stop

    @property
    def failure(self) -> str | None:
        """Why the model is lost for good."""
        return self.executor.failure

    async def generate(self, prompts: dict[str, str], max_new_tokens: int, ignore_eos: bool = False) -> list[str]:
        """The greedy continuation of each prompt, in order. Keys name the prompts in errors, as in "prompts[2]".

        Raises a `ServingError`. Cancelling it takes what still waits out of the queue.
        """
        sequences = [Sequence(prompt, max_new_tokens, ignore_eos) for prompt in prompts.values()]
        try:
            futures = self.admit(sequences)
            results = [await self.answer(*which) for which in zip(prompts, sequences, futures, strict=True)]
        except ServingError as exc:
            self.stats.count(exc.outcome)
            raise
        except asyncio.CancelledError:
            self.stats.count("hung_up")
            raise
        finally:
            self.forget(sequences)
        self.stats.count("completed")
        return results

    def admit(self, sequences: list[Sequence]) -> "list[Future[Any]]":
        """Queue all of them, or none; a future for each. Raises `QueueFull` with an estimate of when to come back."""
        if len(sequences) > self.scheduler.max_queue:
            raise Refused(f"prompts: {len(sequences)}; at most {self.scheduler.max_queue} may wait", field="prompts")
        with self.changed:
            if self.closing:
                raise EngineDead(self.failure or "the server is closing")
            if not self.executor.ready.is_set():
                raise EngineDead("the model is being restarted", retry_after=1)
            try:
                self.scheduler.add(sequences)
            except QueueFull as exc:
                passes = math.ceil(len(self.scheduler.waiting) / self.scheduler.batch_size)
                exc.retry_after = max(1, math.ceil(passes * self.stats.seconds_per_pass()))
                raise
            futures: list[Future[Any]] = [Future() for _ in sequences]
            for sequence, future in zip(sequences, futures, strict=True):
                self.callers[sequence.request_id] = future, self.clock()
                self.trace.instant("queued", request_id=sequence.request_id, waiting=len(self.scheduler.waiting))
            self.changed.notify()
        return futures

    async def answer(self, name: str, sequence: Sequence, future: "Future[Any]") -> str:
        """Wait for one text. Raises a `ServingError` that names the prompt."""
        try:
            result = await asyncio.wrap_future(future)
        except ServingError as exc:
            exc.field, exc.request_id, exc.message = name, sequence.request_id, f"{name}: {exc.message}"
            raise
        self.trace.instant("answered", request_id=sequence.request_id, text=result.text)
        return result.text

    def forget(self, sequences: list[Sequence]) -> None:
        """Nobody waits for these any more: what has not begun never will."""
        with self.changed:
            for sequence in sequences:
                self.scheduler.drop(sequence)
                self.callers.pop(sequence.request_id, None)

    def drive(self) -> None:
        """The body of the driver thread: schedule, run, deliver, repeat. However it ends, nobody is left waiting."""
        try:
            while batch := self.next_batch():
                for sequence, result in zip(batch, self.run(batch), strict=True):
                    self.deliver(sequence, result)
        except Exception as exc:
            self.executor.give_up(f"the driver failed: {exc!r}")
            raise
        finally:
            with self.changed:
                self.closing = True
                for future, _ in self.callers.values():
                    if future.set_running_or_notify_cancel():
                        future.set_exception(EngineDead("the server is closing"))

    def next_batch(self) -> list[Sequence]:
        """Wait until there is work; empty when closing."""
        with self.changed:
            while not self.closing:
                if batch := self.scheduler.schedule():
                    ids = [sequence.request_id for sequence in batch]
                    self.trace.instant("scheduled", request_ids=ids, waiting=len(self.scheduler.waiting))
                    return batch
                self.changed.wait()
        return []

    def run(self, batch: list[Sequence]) -> list[Completion | Refusal | ServingError]:
        """One pass; what came of each sequence. If the pass as a whole raises, each is tried alone."""
        try:
            results, work = self.executor.execute(batch)
            if len(results) != len(batch):
                raise WorkerFailed(f"{len(results)} results for a batch of {len(batch)}")
        except WorkerFailed as exc:
            return [exc] if len(batch) == 1 else [self.run([sequence])[0] for sequence in batch]
        except ServingError as exc:
            return [exc] * len(batch)
        except Exception as exc:  # a worker that returns what is no result
            return [WorkerFailed(repr(exc))] * len(batch)
        with self.changed:
            since = [self.callers[s.request_id][1] for s in batch if s.request_id in self.callers]
        self.stats.record(work, since)
        return results

    def deliver(self, sequence: Sequence, result: Completion | Refusal | ServingError) -> None:
        """Hand one caller what came of its sequence, unless it has gone."""
        with self.changed:
            self.scheduler.finish(sequence)
            future, _ = self.callers.pop(sequence.request_id, (None, 0.0))
        if future and future.set_running_or_notify_cancel():
            if isinstance(result, Completion):
                future.set_result(result)
            else:
                future.set_exception(Refused(result.message) if isinstance(result, Refusal) else copy(result))

    @property
    def ready(self) -> bool:
        """Whether a request would be served now."""
        return self.executor.ready.is_set() and self._driver.is_alive()

    def snapshot(self) -> dict[str, Any]:
        """The counters behind `/stats`."""
        with self.changed:
            running, queued = len(self.scheduler.active), len(self.scheduler.waiting)
        return self.stats.snapshot(self.clock(), running=running, queued=queued)
