"""The tour's arithmetic and its table: from what the users saw and what `/stats` counted to figures. Pure."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from .asking import Ask, Reply


@dataclass
class Figures:
    """One stage, measured. Times are in seconds. None: this stage has no such thing."""

    stage: str
    failed: bool = False
    asked: int = 0
    """requests whose answers were judged, the samples included"""
    wrong: int = 0
    judged: bool = True
    """whether anyone knows what the right answers are"""
    requests: int = 0
    """requests of the crowd; all that follows is about these"""
    seconds: float = 0.0
    requests_per_second: float = 0.0
    tokens_per_second: float | None = None
    latency_p50: float = 0.0
    latency_min: float = 0.0
    latency_max: float = 0.0
    ttft_p50: float | None = None
    passes: int | None = None
    forward_passes: int | None = None
    rows_per_forward: float = 0.0
    busy_rows: float | None = None
    """rows in a forward pass, as a share of what one could carry"""
    busy_time: float | None = None
    """time in forward passes, as a share of all time"""
    counted: dict[str, float] = field(default_factory=dict)
    """by how much each counter of `/stats` grew"""

    @property
    def capacity(self) -> float:
        """Rows that a forward pass could carry."""
        return self.rows_per_forward / self.busy_rows if self.busy_rows else 0.0

    def fill(self, remark: str) -> str:
        """A remark with the figures in it; a question mark for one that nobody knows, as when nobody got an answer."""
        figures = {**self.counted, **vars(self), "capacity": self.capacity}
        known = {name: figure for name, figure in figures.items() if figure is not None}
        return remark.format_map(defaultdict(_Unknown, known))


class _Unknown:
    def __format__(self, how: str) -> str:
        return "?"


def measure(
    stage: str, crowd: list[tuple[Ask, Reply]], seconds: float, before: dict[str, Any], after: dict[str, Any]
) -> Figures:
    """Figures of a crowd of requests; `before` and `after` are what `/stats` said around it."""

    def grown(counter: str) -> float:
        return after.get(counter, 0) - before.get(counter, 0)

    latencies = [reply.seconds for _, reply in crowd] or [0.0]
    firsts = [reply.first for _, reply in crowd if reply.first is not None]
    figures = Figures(
        stage,
        requests=len(crowd),
        seconds=seconds,
        requests_per_second=len(crowd) / seconds if seconds else 0.0,
        latency_p50=median(latencies),
        latency_min=min(latencies),
        latency_max=max(latencies),
        ttft_p50=median(firsts) if firsts else None,
        counted={name: grown(name) for name, value in after.items() if isinstance(value, int | float)},
    )
    if "passes" in after:
        figures.passes = round(grown("passes"))
    if grown("forward_passes"):
        figures.forward_passes = round(grown("forward_passes"))
        figures.rows_per_forward = grown("row_steps") / grown("forward_passes")
    if grown("forward_passes") and after.get("positions_computed") != 0:  # a classifier feeds no tokens and gets none
        # a row that has not finished gets one token from each forward pass
        figures.tokens_per_second = (grown("row_steps") - grown("idle_row_steps")) / seconds if seconds else 0.0
    if after.get("rows_per_forward"):
        figures.busy_rows = figures.rows_per_forward * after["busy_rows"] / after["rows_per_forward"]
    if "forward_seconds" in after and seconds:  # the server's own busy_time counts the time before the crowd came
        figures.busy_time = min(1.0, grown("forward_seconds") / seconds)  # two models may compute at once
    return figures


def tour_table(rows: list[Figures]) -> Table:
    """A row a stage."""
    table = Table("stage", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("right", "req/s", "tok/s", "p50 ms", "TTFT ms", "forwards", "busy: rows", "busy: time"):
        table.add_column(heading, justify="right")
    for row in rows:
        if row.failed:
            table.add_row(row.stage.replace("_", " "), "[red]failed[/]")
            continue
        right = f"{row.asked - row.wrong}/{row.asked}{'' if row.judged else ' ?'}"
        table.add_row(
            row.stage.replace("_", " "),
            f"[red]{right}[/]" if row.wrong else right,
            f"{row.requests_per_second:.1f}",
            _shown(row.tokens_per_second, "{:.0f}"),
            f"{row.latency_p50 * 1000:.0f}",
            _shown(row.ttft_p50 and row.ttft_p50 * 1000, "{:.0f}"),
            _shown(row.forward_passes, "{}"),
            _shown(row.busy_rows, "{:.0%}"),
            _shown(row.busy_time, "{:.0%}"),
        )
    return table


def _shown(value: float | None, how: str) -> str:
    return "-" if value is None else how.format(value)
