"""The knob of stage 05: throughput and latency against `max_delay_ms`, at several rates of arrivals.

People arrive at random (Poisson), the same people for every delay. For each delay a server of its own is started.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.load import open_loop, poisson_arrivals
from benchmarks.predicting import predicting, questions
from benchmarks.records import Run, server_side, summarize
from benchmarks.sheet import Sheet, errors, ms
from benchmarks.targets import ENVIRONMENT
from flo.servers import running_stage

from .scenario import Result, Scenario

MODEL = "shapes"
DELAYS = (0, 1, 2, 5, 10, 20, 50)
"""ms"""
RATES = (10, 50, 150)
"""arrivals a second"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure every delay at every rate."""
    cells: list[dict[str, Any]] = []
    for delay in DELAYS:
        tell(f"starting a server with {delay} ms")
        with running_stage("05", "--max-delay-ms", str(delay), "--max-queue", "2000", env=ENVIRONMENT) as server:
            for rate in RATES:
                tell(f"{delay} ms, {rate} arrivals a second")
                one, look = asyncio.run(arrive(server.url, rate, seconds))
                cells.append({"delay": delay, "rate": rate, **summarize([one]), **server_side([look])})
    return {"cells": cells}


async def arrive(url: str, rate: float, seconds: float) -> tuple[Run, tuple[Any, Any]]:
    """People who come when they come, after one who has the model loaded."""
    async with predicting(url) as (send, http):
        asked = questions(MODEL)
        await send(next(asked), 0.0)
        before = (await http.get("/stats")).json()
        one = await open_loop(send, asked, poisson_arrivals(rate, seconds, seed=1), seconds)
        return one, (before, (await http.get("/stats")).json())


def table(result: Result, *rates: str) -> Sheet:
    """One row a cell."""
    rows = [
        (
            str(cell["rate"]),
            f"{cell['delay']} ms",
            f"{cell['requests_per_second']:.0f}",
            *(ms(cell["latency"][name]) for name in ("p50", "p99")),
            f"{cell['rows_per_forward']:.1f}" if cell["rows_per_forward"] else "-",
            errors(cell["errors"]),
        )
        for cell in sorted(result["cells"], key=lambda cell: (cell["rate"], cell["delay"]))
        if not rates or str(cell["rate"]) in rates
    ]
    headings = ("arrivals/s", "max_delay", "requests/s", "latency p50", "p99", "rows a pass", "errors")
    return Sheet("Open loop: stage 05 with one image classifier", headings, rows)


def draw(result: Result, figure: Any) -> None:
    """Where batching begins, and where users notice."""
    figure.set_size_inches(10, 4.2)
    rows, latency = figure.subplots(1, 2)
    for rate in RATES:
        cells = [cell for cell in result["cells"] if cell["rate"] == rate and cell["completed"]]
        delays = [cell["delay"] for cell in cells]
        [line] = rows.plot(delays, [cell["rows_per_forward"] for cell in cells], "o-", label=f"{rate} arrivals/s")
        for name, style in (("p50", "o-"), ("p99", "o:")):
            found = [cell["latency"][name] * 1000 for cell in cells]
            latency.plot(delays, found, style, color=line.get_color())
    rows.set(title="Where batching begins", ylabel="rows a pass", ylim=(0, None))
    latency.set(title="Where users notice (solid: median, dotted: p99)", ylabel="latency, ms", yscale="log")
    latency.yaxis.set_major_formatter("{x:g}")
    rows.legend()
    for axes in (rows, latency):
        axes.set(xlabel="max_delay_ms")
        axes.grid(alpha=0.3)


SCENARIO = Scenario("max_delay", "throughput and latency against the batcher's delay", MODEL, 6.0, run, table, draw)
