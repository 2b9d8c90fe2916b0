"""The queue in front of one worker, and the task that empties it: sleeps, runs a batch, deals out the results.

It belongs to its worker object, so a model that is evicted and loaded again gets a fresh one. Lives on the event loop;
the pass itself runs on the worker's thread.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .batcher import DynamicBatcher
from .errors import EngineDead, QueueFull, ServingError, WorkerFailed
from .stats import Stats, Work
from .trace import Tracer
from .worker import Prediction, Worker


@dataclass(eq=False)
class Item:
    """One input on its way through a queue; `answer` is what its caller awaits."""

    row: Any
    request_id: str
    answer: "asyncio.Future[Prediction]"
    shape: Hashable = None
    arrived: float = 0.0

    def cancelled(self) -> bool:
        """Whether its caller has gone."""
        return self.answer.cancelled()


class Batching:
    """One for each resident worker. `on_thread(worker, work, ...)` runs what takes time."""

    def __init__(
        self,
        worker: Worker,
        batcher: DynamicBatcher,
        on_thread: Callable[..., Any],
        stats: Stats,
        trace: Tracer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker = worker
        self.batcher = batcher
        self.on_thread = on_thread
        self.stats = stats
        self.trace = trace
        self.clock = clock
        self.draining = False
        self._arrived = asyncio.Event()
        self._task = asyncio.ensure_future(self.drive())

    async def answers(self, rows: list[Any], request_id: str) -> list[Prediction]:
        """Park the rows of a request, and wait for all. Raises `QueueFull`, with an estimate of when to come back.

        Whoever gives up takes its rows out of the queue.
        """
        answers: list[asyncio.Future[Prediction]] = []
        try:
            for row in rows:
                answers.append(self.submit(row, request_id))
            self.trace.instant("parked", request_id=request_id, inputs=len(rows), waiting=len(self.batcher.waiting))
            return [await answer for answer in answers]
        except QueueFull as exc:
            passes = math.ceil(self.batcher.max_queue / self.batcher.max_batch)
            exc.retry_after = max(1, math.ceil(passes * self.stats.seconds_per_pass()))
            raise
        finally:
            for answer in answers:
                answer.cancel()

    def submit(self, row: Any, request_id: str) -> "asyncio.Future[Prediction]":
        """Park a prepared input; its future is the caller's, who may cancel it. Raises `QueueFull`."""
        shape = getattr(row, "shape", None)  # ids of texts are a plain list: those are padded, not stacked
        item = Item(row, request_id, asyncio.get_running_loop().create_future(), shape and tuple(shape))
        self.batcher.submit(item, self.clock())
        self._arrived.set()
        return item.answer

    def drain(self) -> None:
        """The worker is about to go: run what is parked now, and what still comes at once."""
        self.draining = True
        self._arrived.set()

    def close(self) -> None:
        """Stop. Whoever still waits is told so."""
        self._task.cancel()
        for item in self.batcher.waiting:
            settle(item, EngineDead("the server is closing"))

    async def drive(self) -> None:
        """Run what is due, then sleep until something else will be."""
        while True:
            self._arrived.clear()
            batches = self.batcher.flush() if self.draining else self.batcher.tick(self.clock())
            for batch in batches:
                await self.run(batch)
            if not batches:
                await self.sleep()

    async def sleep(self) -> None:
        """Return at the next deadline, or when somebody arrives; not a moment earlier."""
        deadline = self.batcher.next_deadline()
        seconds = None if deadline is None else max(0.0, deadline - self.clock())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)

    async def run(self, batch: list[Item]) -> None:
        """One pass. If it raises, each input is tried alone, so that only the guilty one fails."""
        try:
            results = await self.predict(batch)
        except WorkerFailed as exc:
            if len(batch) == 1:
                settle(batch[0], exc)
            for item in batch if len(batch) > 1 else ():
                await self.run([item])
        except ServingError as exc:
            for item in batch:
                settle(item, exc)
        else:
            self.deal(batch, results)

    async def predict(self, batch: list[Item]) -> list[Prediction]:
        """The pass itself, counted. Raises a `ServingError`."""
        rows, began = [item.row for item in batch], self.clock()
        ids = [item.request_id for item in batch]
        with self.trace.span("predict", request_ids=ids, model=self.worker.metadata.name, rows=len(rows)):
            results = await self.on_thread(self.worker, self.worker.predict, rows)
        work = Work(rows=len(rows), forward_passes=1, row_steps=len(rows), began=began, seconds=self.clock() - began)
        self.stats.record(work, [item.arrived for item in batch])
        return results

    def deal(self, batch: list[Item], results: list[Prediction]) -> None:
        """Each input its own result, or all of them an error if nobody can know whose is whose."""
        if len(results) != len(batch):
            name = self.worker.metadata.name
            error = WorkerFailed(f"{name} returned {len(results)} results for {len(batch)} inputs")
            for item in batch:
                settle(item, error)
            return
        for item, result in zip(batch, results, strict=True):
            settle(item, result)


def settle(item: Item, outcome: Prediction | ServingError) -> None:
    """Answer a caller, unless it has gone."""
    if item.answer.done():
        return
    if isinstance(outcome, Prediction):
        item.answer.set_result(outcome)
    else:
        item.answer.set_exception(type(outcome)(outcome.message, retry_after=outcome.retry_after))
