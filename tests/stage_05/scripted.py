"""Stage 05's scripted workers, and how its tests ask them."""

from functools import partial
from typing import Any

from tests import scripted_models
from tests.scripted_models import SECONDS, reached
from tests.serving import Stage

__all__ = ["FOREVER", "SECONDS", "Script", "ask", "make_residency", "metadata", "reached", "shipped"]

stage = Stage("05_dynamic_batcher")
metadata = partial(scripted_models.metadata, stage)
shipped = partial(scripted_models.shipped, stage)
FOREVER = 3_600_000.0  # ms: longer than any test


class Script(scripted_models.Script):
    stage = stage


def make_residency(
    parts: Any, script: Script, slots: int = 2, max_batch: int = 4, max_delay_ms: float = 0.0, max_queue: int = 128
) -> Any:
    trace, stats = stage.trace.Tracer(), stage.stats.Stats(0.0)

    def queue_for(worker: Any, on_thread: Any) -> Any:
        return parts.batching(worker, parts.batcher(max_batch, max_delay_ms, max_queue), on_thread, stats, trace)

    workers = {**parts.workers, "scripted": script.worker}
    return parts.residency(parts.policy(slots), workers, "cpu", queue_for, trace)


async def ask(residency: Any, name: str, item: Any = "hello") -> str:
    """The label with which a scripted model answers: its name and how often it has been loaded."""
    prediction = await residency.call(metadata(name), lambda queue: queue.submit(item, "a request"), "a request")
    return prediction.label
