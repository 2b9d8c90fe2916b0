"""The counters behind `GET /stats`: what the model did, and what of that was for nothing.

A worker reports the `Work` of each pass; `Stats` adds it up. Both are plain arithmetic: time comes in as an argument.
"""

import threading
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

CAPACITY = 16
"""Rows that one forward pass could carry for nearly the price of one: decoding is memory-bound."""


@dataclass
class Work:
    """What one pass of a batch through the model took. Units: counts, and seconds of a monotonic clock."""

    rows: int = 0
    """sequences in the pass"""
    forward_passes: int = 0
    """calls of the model: one for the prompt, one for each token after the first"""
    row_steps: int = 0
    """rows summed over the forward passes"""
    positions_computed: int = 0
    """token positions fed to the model, padding included"""
    positions_padding: int = 0
    """of those, positions that held only padding"""
    idle_row_steps: int = 0
    """row-steps spent on rows that had already finished"""
    began: float = 0.0
    """when the pass began"""
    seconds: float = 0.0
    """how long it ran"""


class Stats:
    """Totals since `now`, the moment the server was built. Safe to use from several threads."""

    def __init__(self, now: float) -> None:
        self._lock = threading.Lock()
        self._began = now
        self._requests = {"completed": 0, "refused": 0, "failed": 0, "hung_up": 0}
        self._passes = 0
        self._work = Work()
        self._queue_seconds = 0.0
        self._recent: deque[float] = deque(maxlen=16)

    def count(self, outcome: str) -> None:
        """Count a request that ended: "completed", "refused" (a 4xx or a full queue), "failed" or "hung_up"."""
        with self._lock:
            self._requests[outcome] += 1

    def record(self, work: Work, queued_since: list[float]) -> None:
        """Add one pass; `queued_since` has the arrival time of each of its rows. One without rows never ran."""
        if not work.rows:
            return
        with self._lock:
            self._passes += 1
            self._recent.append(work.seconds)
            for name, value in asdict(work).items():
                setattr(self._work, name, getattr(self._work, name) + value)
            self._work.began = work.began
            self._queue_seconds += sum(max(0.0, work.began - since) for since in queued_since)

    def seconds_per_pass(self) -> float:
        """The mean length of the last few passes; one second as long as there was none."""
        with self._lock:
            return sum(self._recent) / len(self._recent) if self._recent else 1.0

    def snapshot(self, now: float, **gauges: Any) -> dict[str, Any]:
        """All counters at `now`, as JSON-ready values, with the caller's `gauges` (queue lengths and the like)."""
        with self._lock:
            work = self._work
            rows_per_forward = work.row_steps / work.forward_passes if work.forward_passes else 0.0
            return {
                "requests": dict(self._requests),
                "passes": self._passes,
                "rows_per_pass": work.rows / self._passes if self._passes else 0.0,
                "forward_passes": work.forward_passes,
                "row_steps": work.row_steps,
                "rows_per_forward": rows_per_forward,
                "positions_computed": work.positions_computed,
                "positions_padding": work.positions_padding,
                "positions_attended": work.positions_computed - work.positions_padding,
                "idle_row_steps": work.idle_row_steps,
                "queue_seconds": self._queue_seconds,
                "forward_seconds": work.seconds,
                "busy_rows": rows_per_forward / CAPACITY,
                "busy_time": work.seconds / (now - self._began) if now > self._began else 0.0,
                **gauges,
            }
