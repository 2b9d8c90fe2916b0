"""What stands in front of a streaming worker: who waits, who runs, and the task that steps them all together.

Lives on the event loop; each step runs on the worker's own thread. Stage 03's decode loop, without a lock: everything
that decides happens on the loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Any

from .errors import EngineDead, ServingError, WorkerFailed
from .scheduler import Scheduler
from .sequence import Sequence, Token
from .stats import Stats
from .streaming_worker import StreamingWorker
from .trace import Tracer


class Streams:
    """One for each resident worker that streams. `on_thread(worker, work, ...)` runs what takes time."""

    def __init__(
        self,
        worker: StreamingWorker,
        scheduler: Scheduler,
        on_thread: Callable[..., Any],
        stats: Stats,
        trace: Tracer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker = worker
        self.scheduler = scheduler
        self.on_thread = on_thread
        self.stats = stats
        self.trace = trace
        self.clock = clock
        self._recent: deque[float] = deque(maxlen=16)
        self._arrived = asyncio.Event()
        self._task = asyncio.ensure_future(self.drive())

    def submit(self, sequence: Sequence) -> None:
        """Let a stream wait for its place. Raises `QueueFull`."""
        self.scheduler.add([sequence])
        self._arrived.set()

    def leave(self, sequence: Sequence) -> None:
        """A stream has ended, or nobody reads it any more: its place and its pin are free. Harmless the second time."""
        self.scheduler.remove(sequence)
        sequence.pin.release()
        self._arrived.set()  # its slot in the cache is freed by the next step, if there is one; else by an empty one

    def drain(self) -> None:
        """The worker is about to go. Whoever streams holds a pin, so nobody does."""

    def close(self) -> None:
        """Stop. Whoever is still here is told so."""
        self._task.cancel()
        self.fail(EngineDead("the server is closing"))

    async def drive(self) -> None:
        """Step as long as there is somebody, then sleep until somebody comes."""
        while True:
            self._arrived.clear()
            batch = self.scheduler.schedule()
            if batch or self.worker.streams:
                await self.step(batch)
            else:
                await self._arrived.wait()

    async def step(self, batch: list[Sequence]) -> None:
        """One token for everyone, and each token to its own reader. However it goes, the loop lives."""
        ids, began = [sequence.request_id for sequence in batch], self.clock()
        try:
            with self.trace.span("step", request_ids=ids, model=self.worker.metadata.name, rows=len(batch)):
                outcomes, work = await self.on_thread(self.worker, self.worker.execute, batch)
            if len(outcomes) != len(batch):
                raise WorkerFailed(f"{len(outcomes)} tokens for {len(batch)} streams")
            self._recent.append(self.clock() - began)
            self.stats.record(work, [sequence.arrived for sequence in batch if not sequence.output_ids])
            for sequence, outcome in zip(batch, outcomes, strict=True):
                if sequence in self.scheduler.running:  # it may have left during the step
                    self.deliver(sequence, outcome)
        except ServingError as exc:
            self.fail(exc)
        except Exception as exc:
            self.fail(WorkerFailed(repr(exc)))

    def deliver(self, sequence: Sequence, outcome: Token | ServingError) -> None:
        """To its reader what came of a stream in this step: a piece of text, how it ended, or an error."""
        if isinstance(outcome, ServingError):
            self.end(sequence, copy(outcome))
            return
        reason = self.scheduler.update(sequence, outcome)
        piece, found = sequence.text_of(outcome.id, last=bool(reason))
        reason = "stop" if found else reason
        self.trace.instant("token", request_id=sequence.request_id, token=outcome.id, text=piece, reason=reason)
        if reason:
            self.end(sequence, (piece, reason))
        elif sequence.mailbox.overflowed:
            self.leave(sequence)  # its reader has been told
        elif piece:
            sequence.mailbox.post((piece, None))

    def end(self, sequence: Sequence, delivery: Any) -> None:
        """The last delivery to a reader; the model is free of this stream from here on."""
        self.leave(sequence)
        sequence.mailbox.post(delivery)

    def fail(self, error: ServingError) -> None:
        """End everybody."""
        for sequence in [*self.scheduler.running, *self.scheduler.waiting]:
            self.end(sequence, copy(error))

    def seconds_left(self) -> float:
        """About how long until the last of those who are here has ended, if none stops early."""
        return self.scheduler.steps_ahead() * self.seconds_per_step()

    def seconds_per_step(self) -> float:
        """The mean length of the last few steps; one second as long as there was none."""
        return sum(self._recent) / len(self._recent) if self._recent else 1.0
