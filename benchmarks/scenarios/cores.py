"""Two engine cores against one, with equal threads in all: what a second core costs, and how work is shared out.

Both servers are stage 07 with the same model. One has two cores with one thread of torch each, the other one core with
two: no flag says so, `OMP_NUM_THREADS` does.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from benchmarks.prompts import fixed
from benchmarks.records import Run, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import Target, need, running_target
from benchmarks.turns import HALVES, in_turns

from .scenario import Result, Scenario
from .smollm2 import boxed

MODEL = "smollm2"
SERVERS = {"one_core": (1, 2), "two_cores": (2, 1)}
"""cores, and threads of each"""
USERS = 16
PROMPT, TOKENS = "Once upon a time", 64


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure both."""
    need(MODEL)
    tell("starting the servers")
    with ExitStack() as stack:
        targets = [
            stack.enter_context(
                running_target(
                    "07", MODEL, "--data-parallel-size", str(cores),
                    env={"OMP_NUM_THREADS": str(threads)}, called=name,
                )
            )
            for name, (cores, threads) in SERVERS.items()
        ]  # fmt: skip

        async def half(target: Target, _: int) -> tuple[Run, list[int]]:
            lane = Target(target.name, target.url, "/v1/completions")
            async with lane.client() as client:
                before = (await client.get("/stats"))["cores"]
                one = await boxed(client, USERS, seconds / HALVES, fixed(PROMPT, TOKENS))
                after = (await client.get("/stats"))["cores"]
                return one, [rows(after[core]) - rows(before.get(core, {})) for core in sorted(after)]

        found = in_turns(targets, half, tell)
    return {"users": USERS, "tokens": TOKENS, "cells": [cell(name, found[name]) for name in SERVERS]}


def rows(core: dict[str, Any]) -> int:
    """Rows that a core has computed, a token each."""
    return int(core.get("work", {}).get("rows", 0))


def cell(name: str, halves: list[tuple[Run, list[int]]]) -> dict[str, Any]:
    """One server; `shares` says which part of all rows each core had."""
    cores, threads = SERVERS[name]
    each = [sum(some) for some in zip(*(one for _, one in halves), strict=True)]
    shares = [one / (sum(each) or 1) for one in each]
    return {
        "target": name,
        "cores": cores,
        "threads": threads,
        **summarize([one for one, _ in halves]),
        "shares": shares,
    }


def ratio(result: Result) -> float:
    """Two cores' tokens per second, as a part of one core's."""
    rates = {cell["target"]: cell["tokens_per_second"] for cell in result["cells"]}
    return rates["two_cores"] / rates["one_core"]


def table(result: Result) -> Sheet:
    """One row a server."""
    rows = [
        (
            server_name(cell["target"]),
            str(cell["threads"]),
            f"{cell['tokens_per_second']:.0f}",
            ms(cell["ttft"]["p50"]),
            ms(cell["latency"]["p50"]),
            " and ".join(f"{share:.0%}" for share in cell["shares"]),
            errors(cell["errors"]),
        )
        for cell in result["cells"]
    ]
    headings = ("stage 07 with", "threads each", "tokens/s", "first text p50", "latency p50", "work of each", "errors")
    return Sheet(f"{result['users']} streams of {result['tokens']} tokens", headings, rows, words=1)


SCENARIO = Scenario("cores", "two engine cores against one, with equal threads", MODEL, 60.0, run, table, quick=False)
