"""How long people wait for the first text and for all of it, when they come by themselves and their answers differ.

Answers have 4 to 50 tokens, each length as likely: as long as the routes without a stream allow, so that all servers
can be asked the same. First the capacity of each server is measured, as a closed loop with twice as many users as stage
03's batch has rows. Then people arrive at random (Poisson) at a share of stage 03's capacity, the same people with the
same questions at every server. Where nothing streams, the first text is the whole answer.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.load import Client, closed_loop, open_loop, poisson_arrivals
from benchmarks.prompts import counting
from benchmarks.records import OK, Run, percentile, server_side, spread, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import Target, existing_stages, running_targets

from .scenario import Result, Scenario

MODEL = "tiny-opt"
SHORTEST, LONGEST = 3, 49
"""numbers in an answer; the stop token makes one more token"""
LENGTHS = ((4, 10), (11, 20), (21, 30), (31, 40), (41, 50))
"""of answers in tokens, for latency by length"""
LOAD = 0.6
"""arrivals, as a share of what the reference completes at most"""
REFERENCE = "03_stream"
USERS = 32
HALVES = 2
LEAST_SECONDS = 1.0
"""for measuring a capacity"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure capacities, then everybody under the same arrivals; in halves, the second in reverse order."""
    busy: dict[str, list[Run]] = defaultdict(list)
    runs: dict[str, list[Run]] = defaultdict(list)
    looks: dict[str, list[Any]] = defaultdict(list)
    tell("starting the servers")
    with running_targets(existing_stages(), MODEL) as servers:
        targets = [server.lanes()[-1] for server in servers]
        turns = [(half, target) for half in range(HALVES) for target in targets[:: -1 if half else 1]]
        for half, target in turns:
            tell(f"capacity of {target.name}")
            busy[target.name].append(asyncio.run(saturate(target, max(LEAST_SECONDS, seconds / 4), half)))
        capacity = {name: summarize(found)["requests_per_second"] for name, found in busy.items()}
        rate = LOAD * capacity[REFERENCE]
        for half, target in turns:
            tell(f"{target.name}: {rate:.1f} arrivals a second")
            one, look = asyncio.run(arrive(target, rate, seconds / HALVES, half))
            runs[target.name].append(one)
            looks[target.name].append(look)
    cells = [cell(name, capacity[name], rate, runs[name]) | server_side(looks[name]) for name in capacity]
    return {"load": LOAD, "reference": REFERENCE, "rate": rate, "cells": cells}


async def saturate(target: Target, seconds: float, seed: int) -> Run:
    """More users than the server has room for, each of whom asks again at once."""
    prompts = counting(SHORTEST, LONGEST, 100 + seed)
    async with Client(target.url, target.path) as client:
        return await closed_loop(client.send, prompts, USERS, seconds / 2, 10_000, seconds / 2)


async def arrive(target: Target, rate: float, seconds: float, seed: int) -> tuple[Run, tuple[Any, Any]]:
    """People who come when they come, and what `/stats` said around them."""
    prompts = counting(SHORTEST, LONGEST, seed)
    async with Client(target.url, target.path) as client:
        before = await client.get("/stats")
        one = await open_loop(client.send, prompts, poisson_arrivals(rate, seconds, seed), seconds)
        return one, (before, await client.get("/stats"))


def cell(target: str, capacity: float, rate: float, runs: list[Run]) -> dict[str, Any]:
    """What one server did."""
    good = [record for run in runs for record in run.records if record.outcome == OK]
    first = [record.first_text for record in good]
    groups = [[record for record in good if low <= record.tokens <= high] for low, high in LENGTHS]
    return {
        "target": target,
        "capacity": capacity,
        "load": rate / capacity if capacity else None,
        **summarize(runs),
        "first": spread(first),
        "quantiles": {"first": quantiles(first), "full": quantiles(record.latency for record in good)},
        "full_by_length": [percentile((record.latency for record in group), 50) for group in groups],
    }


def quantiles(values: Iterable[float]) -> list[float | None]:
    """The values at 1, 2, ... 100 percent."""
    values = list(values)
    return [percentile(values, percent) for percent in range(1, 101)]


HEADINGS = ("server", "capacity, requests/s", "load", "first text p50", "p95", "full answer p50", "p95")
MORE = ("rows a pass", "errors")


def table(result: Result) -> Sheet:
    """One row a server."""
    rows = [
        (
            server_name(cell["target"]),
            f"{cell['capacity']:.1f}",
            f"{cell['load']:.0%}" if cell["load"] else "-",
            *(ms(cell[what][name]) for what in ("first", "latency") for name in ("p50", "p95")),
            f"{cell['rows_per_forward']:.1f}" if cell["rows_per_forward"] else "-",
            errors(cell["errors"]),
        )
        for cell in result["cells"]
    ]
    title = f"Open loop: {result['rate']:.1f} people a second, answers of 4 to 50 tokens"
    return Sheet(title, HEADINGS + MORE, rows, words=1)


def draw(result: Result, figure: Any) -> None:
    """How many have waited at most how long; and the wait by the length of the answer."""
    figure.set_size_inches(10, 4.6)
    waits, lengths = figure.subplots(1, 2)
    for cell in result["cells"]:
        label, found = server_name(cell["target"]), cell["quantiles"]
        streams = found["first"] != found["full"]
        [line] = waits.step(found["full"], range(1, 101), where="post", label=f"{label}: full answer")
        if streams:
            waits.step(found["first"], range(1, 101), "--", where="post", color=line.get_color())
            waits.plot([], [], "--", color=line.get_color(), label=f"{label}: first text")
        lengths.plot(range(len(LENGTHS)), cell["full_by_length"], "o-", color=line.get_color())
    waits.set(title="Who has what within how long", xlabel="seconds", ylabel="percent of people")
    waits.set(xscale="log", ylim=(0, 100))
    waits.xaxis.set_major_formatter("{x:g}")
    lengths.set(title="Median time to the full answer, by its length", xlabel="tokens in the answer", ylabel="seconds")
    lengths.set(xticks=range(len(LENGTHS)), xticklabels=[f"{low}-{high}" for low, high in LENGTHS], ylim=(0, None))
    for axes in (waits, lengths):
        axes.title.set_fontsize(10)
        axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)


SCENARIO = Scenario(
    "open_loop", "time to the first text and to the full answer under random arrivals", MODEL, 20.0, run, table, draw
)
