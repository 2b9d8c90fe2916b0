"""What the routes call: finds the model's metadata, counts who waits, and asks whoever keeps the models.

Knows no tensors and no HTTP. Inputs are prepared here, each alone; the queue of their model decides who shares a pass.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from .batching import Batching
from .errors import EngineDead, Overdue, QueueFull, ServingError, UnknownModel
from .inputs import named, prepared
from .registry import Metadata
from .residency import Residency
from .stats import Stats
from .trace import Tracer
from .worker import Prediction

CLOSE_SECONDS = 10.0
"""to free all models when the server ends"""


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry
        self.residency = residency
        self.max_queue = max_queue
        self.deadline = deadline
        self.trace = trace
        self.clock = clock
        self.stats = stats
        self.closing = False
        self.calls: set[asyncio.Future[Any]] = set()

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

    async def stop(self) -> None:
        """Free all models."""
        await self.residency.close(CLOSE_SECONDS)

    async def predict(self, model_id: str, input_data: Any) -> list[Prediction]:
        """A prediction for each input, in order. Raises a `ServingError`."""
        request_id = uuid4().hex
        self.trace.instant("queued", request_id=request_id, model=model_id, ahead=len(self.calls))
        try:
            predictions = await self.admit(model_id, named(input_data), request_id)
        except ServingError as exc:
            exc.request_id = request_id
            self.stats.count(exc.outcome)
            raise
        except asyncio.CancelledError:
            self.stats.count("hung_up")
            raise
        self.stats.count("completed")
        self.trace.instant("answered", request_id=request_id, labels=[prediction.label for prediction in predictions])
        return predictions

    async def admit(self, model_id: str, items: dict[str, Any], request_id: str) -> list[Prediction]:
        """Let a request go on if there is room, for as long as it may take."""
        if self.closing:
            raise EngineDead("the server is closing")
        metadata = self.registry.get(model_id)
        if not metadata:
            raise UnknownModel("model_id: no model has this id; GET /models lists them", field="model_id")
        if len(self.calls) >= self.max_queue:
            wait = math.ceil(len(self.calls) * self.stats.seconds_per_pass())
            raise QueueFull(f"the queue is full ({len(self.calls)} of {self.max_queue})", retry_after=max(1, wait))
        call = asyncio.ensure_future(
            self.residency.call(metadata, lambda queue: self.answer(queue, items, request_id), request_id)
        )
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

    async def answer(self, queue: Batching, items: dict[str, Any], request_id: str) -> list[Prediction]:
        """All inputs are looked at before the first is parked."""
        rows = [await prepared(queue.worker, name, item) for name, item in items.items()]
        return await queue.answers(rows, request_id)

    def models(self) -> dict[str, Any]:
        """What there is, and what is in memory, least recently used first."""
        loaded = [
            {
                "id": entry.model_id,
                "name": self.registry[entry.model_id].name,
                "state": entry.state.value,
                "bytes": entry.worker.worker.size() if entry.worker and entry.worker.worker.model is not None else 0,
                "calls": entry.calls,
                "waiting": len(entry.worker.batcher.waiting) if entry.worker else 0,
            }
            for entry in self.residency.policy.entries.values()
        ]
        return {
            "available": [metadata.model_dump(exclude={"url"}) for metadata in self.registry.values()],
            "loaded": loaded,
        }

    def snapshot(self) -> dict[str, Any]:
        """The counters behind `/stats`."""
        residency = self.residency
        gauges = {**residency.counts, "load_seconds": residency.load_seconds, "resident": len(residency.policy.entries)}
        return self.stats.snapshot(self.clock(), queued=len(self.calls), **gauges)
