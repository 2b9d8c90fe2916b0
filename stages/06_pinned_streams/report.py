"""What `GET /models` and `GET /stats` tell of the models in memory. Reads everything, changes nothing."""

from typing import Any

from .batching import Batching
from .registry import Metadata
from .residency import Residency
from .streams import Streams


def models(registry: dict[str, Metadata], residency: Residency) -> dict[str, Any]:
    """What there is, and what is in memory, least recently used first."""
    loaded = [
        {
            "id": entry.model_id,
            "name": registry[entry.model_id].name,
            "state": entry.state.value,
            "bytes": entry.worker.worker.size() if entry.worker and entry.worker.worker.model is not None else 0,
            "pins": entry.pins,
            "waiting": waiting_at(entry.worker),
        }
        for entry in residency.policy.entries.values()
    ]
    return {"available": [metadata.model_dump(exclude={"url"}) for metadata in registry.values()], "loaded": loaded}


def gauges(residency: Residency) -> dict[str, Any]:
    """What `/stats` says beside what the passes have cost: loads and evictions, pins, streams, and the KV caches."""
    entries = residency.policy.entries.values()
    streaming = [entry.worker for entry in entries if isinstance(entry.worker, Streams)]
    kv_bytes = [queue.worker.kv_bytes() for queue in streaming]
    reserved, used = sum(of[0] for of in kv_bytes), sum(of[1] for of in kv_bytes)
    return {
        **residency.counts,
        "load_seconds": residency.load_seconds,
        "resident": len(entries),
        "pins": sum(entry.pins for entry in entries),
        "streams_running": sum(len(queue.scheduler.running) for queue in streaming),
        "streams_waiting": sum(len(queue.scheduler.waiting) for queue in streaming),
        "kv_bytes_reserved": reserved,
        "kv_bytes_used": used,
        "kv_bytes_wasted": reserved - used,
    }


def waiting_at(queue: Batching | Streams | None) -> int:
    """How many wait in front of a worker."""
    if isinstance(queue, Streams):
        return len(queue.scheduler.waiting)
    return len(queue.batcher.waiting) if queue else 0
