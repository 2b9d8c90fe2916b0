"""The same memory for the KV cache, in full-length slots and in blocks: how many streams at once, how many tokens.

Stage 06 reserves a slot of full length for each stream, so its budget is spent on eight of them. Stage 07 hands the
same number of tokens out in blocks of 16. Both stream; both get the same questions from the same crowd.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.load import Client, closed_loop
from benchmarks.prompts import counting
from benchmarks.records import Run, server_side, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import ROOT, TINY_OPT_ID, Target, running_target
from benchmarks.turns import HALVES, in_turns

from .scenario import Result, Scenario

MODEL = "tiny-opt"
SLOTS, CONTEXT, BLOCK = 8, 1024, 16
BUDGET = SLOTS * CONTEXT
"""tokens that the cache may hold"""
USERS = 64
SHORTEST, LONGEST = 10, 90
"""numbers in an answer"""
MOST_REQUESTS = 20_000
LOOK = 0.05
"""seconds between two looks at how many streams have a place"""
Half = tuple[Run, int, tuple[Any, Any]]
"""a run, the most streams at once, and `/stats` before and after"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure both."""
    tell("starting the servers")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "models.json").write_text(json.dumps(registry()), encoding="utf-8")
        blocks = ("--enforce-eager", "--no-enable-prefix-caching", "--num-gpu-blocks-override", str(BUDGET // BLOCK))
        servers = [
            stack.enter_context(running_target("06", MODEL, "--models", str(folder))),
            stack.enter_context(running_target("07", MODEL, *blocks)),
        ]

        async def half(target: Target, number: int) -> Half:
            async with target.client() as client:
                before, warm_up = await client.get("/stats"), seconds / HALVES * 0.3
                asked = counting(SHORTEST, LONGEST, seed=number)
                watch = asyncio.create_task(most_at_once(client))
                one = await closed_loop(client.send, asked, USERS, seconds / HALVES - warm_up, MOST_REQUESTS, warm_up)
                watch.cancel()
                return one, await watch, (before, await client.get("/stats"))

        found = in_turns([server.lanes()[-1] for server in servers], half, tell)
    config = json.loads((ROOT / "models" / MODEL / "config.json").read_bytes())
    size = BUDGET * config["num_hidden_layers"] * 2 * config["hidden_size"] * 4  # keys and values, float32
    return {"users": USERS, "tokens": BUDGET, "bytes": size, "cells": [cell(name, found[name]) for name in found]}


def registry() -> dict[str, Any]:
    """A `models.json` in which the model has the slots of the budget."""
    model = {"id": TINY_OPT_ID, "name": str(ROOT / "models" / MODEL), "framework": "causal-lm", "max_batch": SLOTS}
    return {"models": [{**model, "type": "text-generation", "version": "1", "description": ""}]}


def cell(name: str, halves: list[Half]) -> dict[str, Any]:
    """One server."""
    runs, most, looks = zip(*halves, strict=True)
    return {"target": name, "at_once": max(most), **summarize(runs), **server_side(looks)}


async def most_at_once(client: Client) -> int:
    """Most streams that the server says have a place, looked at until cancelled."""
    most = 0
    with suppress(asyncio.CancelledError):
        while True:
            stats = await client.get("/stats")
            most = max(most, stats["streams_running"] if "streams_running" in stats else stats["running"])
            await asyncio.sleep(LOOK)
    return most


def table(result: Result) -> Sheet:
    """One row a server."""
    rows = [
        (
            server_name(cell["target"]),
            str(cell["at_once"]),
            f"{cell['rows_per_forward']:.1f}" if cell["rows_per_forward"] else "-",
            f"{cell['tokens_per_second']:.0f}",
            ms(cell["ttft"]["p50"]),
            ms(cell["latency"]["p50"]),
            errors(cell["errors"]),
        )
        for cell in result["cells"]
    ]
    headings = ("server", "streams at once", "rows a pass", "tokens/s", "first text p50", "latency p50", "errors")
    title = f"{result['users']} users, {result['tokens']:,} tokens of cache ({result['bytes'] / 2**20:.0f} MiB)"
    return Sheet(title, headings, rows, words=1)


def ratio(result: Result, name: str) -> float:
    """How many times stage 06's value stage 07's is."""
    slots, blocks = (cell[name] for cell in result["cells"])
    return blocks / slots


SCENARIO = Scenario("budget", "full-length slots against blocks, in the same memory", MODEL, 20.0, run, table)
