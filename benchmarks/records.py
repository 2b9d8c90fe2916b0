"""What one request was like, and what many of them add up to.

Pure arithmetic over records: no clock, no network. Times are seconds of one monotonic clock, and the latency of a
request counts from the moment it was *scheduled*, so a server that stalls the sender is charged for the stall.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

OK, WRONG = "ok", "wrong"


@dataclass(frozen=True)
class Record:
    """One request. `outcome` is "ok", "wrong", an HTTP status, or a word for what broke ("timeout")."""

    scheduled: float
    finished: float
    outcome: str
    tokens: int = 0
    """tokens generated, the stop token included"""
    pieces: tuple[float, ...] = ()
    """when each piece of text arrived; empty unless the answer was streamed"""
    detail: str = ""
    """what was asked, expected and received, if the answer was wrong"""

    @property
    def latency(self) -> float:
        """Seconds until the answer was complete."""
        return self.finished - self.scheduled

    @property
    def first_text(self) -> float:
        """Seconds until there was something to read; where nothing streams, that is the whole answer."""
        return (self.pieces[0] if self.pieces else self.finished) - self.scheduled


@dataclass(frozen=True)
class Run:
    """The records of one loop. What ended before `began` was for warming up; the last requests began in the `window`
    seconds after it, and some may have ended later."""

    records: Sequence[Record]
    began: float
    window: float


class WrongAnswers(Exception):
    """A server gave a wrong answer while it was measured, so its figures are worth nothing."""


def percentile(values: Iterable[float], percent: float) -> float | None:
    """The smallest value that at least `percent` of all values do not exceed (nearest rank); None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(1, math.ceil(percent / 100 * len(ordered))) - 1]


def spread(values: Iterable[float]) -> dict[str, float | None]:
    """Median, tail and maximum of some durations."""
    values = list(values)
    return {f"p{percent}": percentile(values, percent) for percent in (50, 95, 99)} | {"max": max(values, default=None)}


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """The figures of a cell, JSON-ready, over all its runs. Raises `WrongAnswers` if a single answer was wrong.

    Rates count what ended inside the windows. Latencies are those of all requests that succeeded, late ones too:
    leaving those out would favor a server that makes people wait.
    """
    everything = [record for run in runs for record in run.records]
    wrong = [record for record in everything if record.outcome == WRONG]
    if wrong:
        raise WrongAnswers(f"{len(wrong)} of {len(everything)} answers were wrong, such as: {wrong[0].detail}")
    records = [record for run in runs for record in run.records if record.finished >= run.began]
    good = [record for record in records if record.outcome == OK]
    in_time = [
        record
        for run in runs
        for record in run.records
        if record.outcome == OK and run.began <= record.finished <= run.began + run.window
    ]
    seconds = sum(run.window for run in runs)
    streamed = [record for record in good if record.pieces]
    gaps = [b - a for record in streamed for a, b in pairwise(record.pieces)]
    return {
        "requests": len(records),
        "completed": len(good),
        "wrong": 0,
        "errors": dict(Counter(record.outcome for record in records if record.outcome != OK)),
        "seconds": seconds,
        "requests_per_second": len(in_time) / seconds if seconds else 0.0,
        "tokens_per_second": sum(record.tokens for record in in_time) / seconds if seconds else 0.0,
        "latency": spread(record.latency for record in good),
        "ttft": spread(record.first_text for record in streamed),
        "inter_token": spread(gaps),
    }


def server_side(looks: Sequence[tuple[dict[str, Any] | None, dict[str, Any] | None]]) -> dict[str, float | None]:
    """What the servers' counters say of some runs, each looked at before and after; all None if it keeps none.

    `queue_wait`: mean seconds from a request's arrival to its pass. `rows_per_forward`: mean rows in a forward pass.
    """

    def grown(*path: str) -> float:
        return sum(_at(after, path) - _at(before, path) for before, after in looks if before and after)

    completed, forwards = grown("requests", "completed"), grown("forward_passes")
    return {
        "queue_wait": grown("queue_seconds") / completed if completed else None,
        "rows_per_forward": grown("row_steps") / forwards if forwards else None,
    }


def _at(counters: Any, path: Sequence[str]) -> float:
    for key in path:
        counters = counters.get(key, 0)  # some servers name a counter only once it has counted
    return counters
