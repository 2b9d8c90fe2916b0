"""What the routes call: finds the model's metadata, counts who waits, and asks whoever keeps the models.

Knows no tensors and no HTTP. A prediction is one call from beginning to end. A stream is admitted by one call,
`submit`, and read by another, `pieces`; its pin goes with it.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

from . import report
from .batching import Batching
from .detokenizer import Detokenizer
from .errors import EngineDead, Overdue, QueueFull, Refused, ServingError, UnknownModel
from .inputs import named, prepared
from .lru import NoIdleModel
from .mailbox import Mailbox
from .registry import Metadata
from .residency import Residency
from .sequence import Sampling, Sequence
from .stats import Stats
from .stop_strings import StopStrings
from .streaming_worker import StreamingWorker
from .streams import Streams
from .trace import Tracer
from .worker import Prediction

T = TypeVar("T")
CLOSE_SECONDS = 10.0
"""to free all models when the server ends"""


class Aborted(ServingError):
    """The stream was taken out because nobody reads it."""

    status = 499
    outcome = "hung_up"


class Engine:
    """One for the whole process, built once, before the server listens."""

    failure: str | None = None
    """why the engine is lost for good; a model that cannot be loaded is no such reason"""

    def __init__(
        self,
        registry: dict[str, Metadata],
        residency: Residency,
        stats: Stats,
        max_queue: int,
        deadline: float,
        trace: Tracer,
        mailbox: type[Mailbox] = Mailbox,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry
        self.residency = residency
        self.max_queue = max_queue
        self.deadline = deadline
        self.trace = trace
        self.mailbox = mailbox
        self.clock = clock
        self.stats = stats
        self.closing = False
        self.calls: set[asyncio.Future[Any]] = set()
        """predictions, and streams that are being admitted"""
        self.streams: dict[Sequence, Streams] = {}
        """those that were admitted, until they end, and where they are"""

    def on_fatal(self, stop: Callable[[], object]) -> None:
        """Call `stop` when the engine is lost for good."""

    @property
    def ready(self) -> bool:
        """Whether a request would be served now."""
        return not self.closing

    def start(self) -> None:
        """Nothing is loaded before it is asked for."""

    def close(self) -> None:
        """Fail whoever still waits. May be called from any thread."""
        self.closing = True
        for call in list(self.calls):
            with suppress(RuntimeError):  # its loop has ended, and nobody waits there any more
                call.get_loop().call_soon_threadsafe(call.cancel)
        for sequence in list(self.streams):
            with suppress(RuntimeError):
                sequence.mailbox.loop.call_soon_threadsafe(self.cut_off, sequence)

    def cut_off(self, sequence: Sequence) -> None:
        """The server is closing: tell a stream's reader so."""
        self.end(sequence, EngineDead.outcome)
        sequence.mailbox.put(EngineDead("the server is closing"))

    async def stop(self) -> None:
        """Free all models."""
        self.closing = True
        for sequence in list(self.streams):
            self.cut_off(sequence)
        await self.residency.close(CLOSE_SECONDS)

    async def predict(self, model_id: str, input_data: Any) -> list[Prediction]:
        """A prediction for each input, in order. Raises a `ServingError`."""
        request_id = uuid4().hex

        async def work(metadata: Metadata) -> list[Prediction]:
            items = named(input_data)
            return await self.residency.call(metadata, lambda queue: self.answer(queue, items, request_id), request_id)

        predictions = await self.admitted(model_id, False, work, request_id)
        self.stats.count("completed")
        self.trace.instant("answered", request_id=request_id, labels=[prediction.label for prediction in predictions])
        return predictions

    async def submit(self, model_id: str, prompt: str, sampling: Sampling) -> Sequence:
        """Admit a stream: pin its model, wait for the load, and let it wait for its place. Raises a `ServingError`.

        Whoever gets the sequence has to read it, or to `abort` it.
        """
        request_id, begun = uuid4().hex, list[Sequence]()
        work = lambda metadata: self.begin(metadata, prompt, sampling, request_id, begun)  # noqa: E731
        try:
            return await self.admitted(model_id, True, work, request_id)
        except BaseException:
            for sequence in begun:  # too late: its caller has just given up
                self.leave(sequence)
            raise

    async def begin(
        self, metadata: Metadata, prompt: str, sampling: Sampling, request_id: str, begun: list[Sequence]
    ) -> Sequence:
        """From admission to a place among the streams of a model. The pin is the sequence's, if there is one."""
        pin = await self.residency.admit(metadata, request_id)
        try:
            streams: Streams = await self.residency.loaded(pin)
            ids = await prepared(streams.worker, "prompt", prompt)
            room = streams.worker.context - sampling.max_new_tokens
            if len(ids) > room:
                limit = f"must be at most {room} (a context of {streams.worker.context}, less the new tokens)"
                raise Refused(f"prompt: {len(ids)} tokens; {limit}", field="prompt")
            sequence = Sequence(
                ids,
                sampling,
                self.mailbox(asyncio.get_running_loop()),
                Detokenizer(streams.worker.decode),
                StopStrings(sampling.stop),
                pin,
                self.clock(),
                request_id=request_id,
            )
            self.place(streams, sequence)
        except BaseException:
            pin.release()
            raise
        begun.append(sequence)
        return sequence

    def place(self, streams: Streams, sequence: Sequence) -> None:
        """Let an admitted stream wait for its place. Raises `QueueFull` with an estimate of when to come back."""
        try:
            streams.submit(sequence)
        except QueueFull as exc:
            exc.retry_after = max(1, math.ceil(streams.seconds_left()))
            raise
        self.streams[sequence] = streams
        waiting, ids = len(streams.scheduler.waiting), sequence.prompt_ids
        self.trace.instant("placed", request_id=sequence.request_id, prompt_ids=ids, waiting=waiting)

    async def pieces(self, sequence: Sequence) -> AsyncIterator[tuple[str, str | None]]:
        """Pieces of text as they come; the last one comes with "stop" or "length". Raises a `ServingError`."""
        reason = None
        try:
            while not reason:
                piece, reason = await sequence.mailbox.get()
                if reason:
                    self.end(sequence, "completed")
                yield piece, reason
        except ServingError as exc:
            self.end(sequence, exc.outcome)
            raise

    def abort(self, sequence: Sequence) -> None:
        """Nobody reads this stream any more: free its place and its pin, whatever it is doing. Harmless once it has
        ended. This is called by whoever watches the connection; a generator's `finally` would not do, because a
        generator that was never started has none."""
        self.end(sequence, Aborted.outcome)
        sequence.mailbox.post(Aborted("aborted"))

    def end(self, sequence: Sequence, outcome: str) -> None:
        """A stream has ended, one way or another. It is counted once."""
        if sequence in self.streams:
            self.leave(sequence)
            self.stats.count(outcome)

    def leave(self, sequence: Sequence) -> None:
        """Free the place and the pin of a stream."""
        self.streams.pop(sequence).leave(sequence)

    async def admitted(
        self, model_id: str, streaming: bool, work: Callable[[Metadata], Awaitable[T]], request_id: str
    ) -> T:
        """What `work` returns, if the request may go on, and within the deadline. Whatever fails here is counted."""
        self.trace.instant("queued", request_id=request_id, model=model_id, ahead=len(self.calls))
        try:
            return await self.bounded(self.find(model_id, streaming), work)
        except ServingError as exc:
            exc.request_id = request_id
            if isinstance(exc, NoIdleModel):
                exc.retry_after = max(1, math.ceil(self.seconds_to_idle()))
            self.stats.count(exc.outcome)
            raise
        except asyncio.CancelledError:
            self.stats.count("hung_up")
            raise

    def find(self, model_id: str, streaming: bool) -> Metadata:
        """The model with this id, if it does what it is asked for."""
        if self.closing:
            raise EngineDead("the server is closing")
        metadata = self.registry.get(model_id)
        if not metadata:
            raise UnknownModel("model_id: no model has this id; GET /models lists them", field="model_id")
        kind = self.residency.workers.get(metadata.framework)
        if kind and issubclass(kind, StreamingWorker) is not streaming:
            does, route = ("predicts", "/predict") if streaming else ("streams", "/generate_stream")
            raise Refused(f"model_id: {metadata.name} {does}; ask it at POST {route}", field="model_id")
        return metadata

    async def bounded(self, metadata: Metadata, work: Callable[[Metadata], Awaitable[T]]) -> T:
        """Let a request go on if there is room, for as long as it may take."""
        if len(self.calls) >= self.max_queue:
            wait = math.ceil(len(self.calls) * self.stats.seconds_per_pass())
            raise QueueFull(f"the queue is full ({len(self.calls)} of {self.max_queue})", retry_after=max(1, wait))
        call = asyncio.ensure_future(work(metadata))
        self.calls.add(call)
        try:
            return await asyncio.wait_for(call, self.deadline)
        except TimeoutError:
            raise Overdue(f"{metadata.name} did not answer within {self.deadline:g} s", retry_after=1) from None
        except asyncio.CancelledError:
            if self.closing:
                raise EngineDead("the server is closing") from None
            raise
        finally:
            self.calls.discard(call)

    def seconds_to_idle(self) -> float:
        """About how long until some model has nobody left: the one whose streams have the fewest tokens to go."""
        residents = [entry.worker for entry in self.residency.policy.entries.values() if entry.worker]
        return min(
            (
                queue.seconds_left() if isinstance(queue, Streams) else self.stats.seconds_per_pass()
                for queue in residents
            ),
            default=1.0,
        )

    async def answer(self, queue: Batching, items: dict[str, Any], request_id: str) -> list[Prediction]:
        """All inputs are looked at before the first is parked."""
        rows = [await prepared(queue.worker, name, item) for name, item in items.items()]
        return await queue.answers(rows, request_id)

    def models(self) -> dict[str, Any]:
        """What there is, and what is in memory."""
        return report.models(self.registry, self.residency)

    def snapshot(self) -> dict[str, Any]:
        """The counters behind `/stats`."""
        return self.stats.snapshot(self.clock(), queued=len(self.calls), **report.gauges(self.residency))
