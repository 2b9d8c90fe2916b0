"""Latency and throughput against the number of users: every stage and the ten-line server, side by side in one run.

All servers are up the whole time and take turns. Each cell is measured in two halves, the second in reverse order, so
that a machine that gets slower or faster on the way favors nobody.

`/basic_generate` is the comparison of like with like: every server gets the same question, is greedy, and sends the
same answer in one piece. A server that also streams is measured a second time on that lane, with temperature 0, so the
answer is still the same; what differs then is the price of a frame for every token, paid by the server and by the
load generator on the same cores, and that the first text comes early. Stage 06 only streams. Stages 04 and 05 are not
here: they serve classifiers, whose answers have no tokens (the `batching` scenario has them).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks.load import closed_loop
from benchmarks.prompts import counting
from benchmarks.records import Run, server_side, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import ALL_STAGES, Target, running_targets

from .scenario import Result, Scenario

MODEL = "tiny-opt"
USERS = (1, 4, 16, 50)
SHORTEST, LONGEST = 4, 40
"""numbers in an answer"""
MOST_REQUESTS = 5000
"""in half a cell"""
TIMEOUT = 60.0
HALVES = 2
WARMUP = 0.4
"""of the time that a half lasts; nothing counts that ends in it"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure every target at every number of users."""
    tell("starting the servers")
    with running_targets(("ten_line_server", *ALL_STAGES), MODEL) as servers:
        targets = [lane for server in servers for lane in server.lanes()]
        return {"prompts": {"shortest": SHORTEST, "longest": LONGEST}, "cells": measure(targets, seconds, tell)}


def measure(targets: list[Target], seconds: float, tell: Callable[[str], object]) -> list[dict[str, Any]]:
    """The cells, by number of users and then by target."""
    runs: dict[tuple[int, str], list[Run]] = defaultdict(list)
    looks: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for half in range(HALVES):
        for users in USERS:
            for target in targets[:: -1 if half else 1]:
                tell(f"{target.name}: {users} users, half {half + 1} of {HALVES}")
                one, look = asyncio.run(half_a_cell(target, users, seconds / HALVES, seed=100 * half + users))
                runs[users, target.name].append(one)
                looks[users, target.name].append(look)
    return [
        {"target": target.name, "users": users, **summarize(runs[users, target.name])}
        | server_side(looks[users, target.name])
        for users in USERS
        for target in targets
    ]


async def half_a_cell(target: Target, users: int, seconds: float, seed: int) -> tuple[Run, tuple[Any, Any]]:
    """One run of a closed loop, and what `/stats` said around it."""
    prompts = counting(SHORTEST, LONGEST, seed)
    async with target.client(TIMEOUT) as client:
        before = await client.get("/stats")
        warmup = WARMUP * seconds
        one = await closed_loop(client.send, prompts, users, seconds - warmup, MOST_REQUESTS, warmup)
        return one, (before, await client.get("/stats"))


HEADINGS = ("users", "server", "requests/s", "tokens/s", "latency p50", "p95", "p99")
MORE = ("first text p50", "wait for a pass", "rows a pass", "errors")


def table(result: Result, *targets: str) -> Sheet:
    """One row a cell; of all targets, or of those named."""
    rows = [
        (
            f"{cell['users']}",
            server_name(cell["target"]),
            f"{cell['requests_per_second']:.1f}",
            f"{cell['tokens_per_second']:.0f}",
            *(ms(cell["latency"][name]) for name in ("p50", "p95", "p99")),
            ms(cell["ttft"]["p50"]),
            ms(cell["queue_wait"]),
            f"{cell['rows_per_forward']:.1f}" if cell["rows_per_forward"] else "-",
            errors(cell["errors"]),
        )
        for cell in result["cells"]
        if not targets or cell["target"] in targets
    ]
    return Sheet("Closed loop: each user asks again as soon as an answer is there", HEADINGS + MORE, rows)


def draw(result: Result, figure: Any) -> None:
    """The wait for the first text and throughput against users, one color a server; dashed where nothing streams.

    There the first text is the whole answer.
    """
    from matplotlib.ticker import LogLocator

    figure.set_size_inches(10, 4.6)
    first, throughput = figure.subplots(1, 2)
    for name in dict.fromkeys(cell["target"] for cell in result["cells"]):
        cells = [cell for cell in result["cells"] if cell["target"] == name and cell["completed"]]
        x, label = [cell["users"] for cell in cells], server_name(name)
        style = "o-" if any(cell["ttft"]["p50"] for cell in cells) else "o--"
        waits = [cell["ttft"]["p50"] or cell["latency"]["p50"] for cell in cells]
        [line] = first.plot(x, waits, style, label=label)
        throughput.plot(x, [cell["tokens_per_second"] for cell in cells], style, color=line.get_color())
    first.set(title="Median time to the first text (dashed: nothing streams, so to all of it)", ylabel="seconds")
    first.set(yscale="log")
    throughput.set(title="Throughput", ylabel="tokens per second", ylim=(0, None))
    first.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    first.yaxis.set_major_formatter("{x:g}")
    ticks = sorted({cell["users"] for cell in result["cells"]})
    for axes in (first, throughput):
        axes.title.set_fontsize(10)
        axes.set(xlabel="users", xscale="log", xticks=ticks, xticklabels=ticks)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)


SCENARIO = Scenario(
    "users", "time to the first text and throughput against the number of users", MODEL, 10.0, run, table, draw
)
