"""Long answers for many: stage 07 against the server that one would write first, 256 tokens for everybody.

The stop token is ignored, so all answers are the same text, and each is compared with what the ten-line server says to
one user alone. Each cell is boxed: nobody asks after its first third, and what has not come at its end is given up.
"""

import asyncio
from collections.abc import Callable
from itertools import repeat
from typing import Any

from benchmarks.prompts import Prompt
from benchmarks.records import summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import Target, running_targets

from .scenario import Result, Scenario
from .smollm2 import boxed

MODEL = "tiny-opt"
SERVERS = ("ten_line_server", "07")
USERS = (16, 50)
PROMPT, TOKENS = "Count from 0 to 99:", 256
SETTLE = 120.0
"""seconds for a first answer, and for what was given up"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure both at every number of users, in an order that alternates."""
    cells: dict[tuple[int, str], dict[str, Any]] = {}
    tell("starting the servers")
    with running_targets(SERVERS, MODEL) as targets:
        prompt = asyncio.run(answered(targets[0]))
        for place, users in enumerate(USERS):
            for target in targets[:: -1 if place % 2 else 1]:
                tell(f"{target.name}: {users} users, {seconds:g} s at most")
                cells[users, target.name] = asyncio.run(measure(target, prompt, users, seconds))
    return {"tokens": TOKENS, "cells": [cells[users, name] for users in USERS for name in SERVERS]}


async def answered(target: Target) -> Prompt:
    """The prompt with its answer, which one user alone gets."""
    prompt = Prompt(PROMPT, TOKENS, TOKENS, ignore_eos=True)
    async with target.client(SETTLE) as client:
        text = (await client.post(target.path, prompt.body()))["generated_text"]
    return Prompt(PROMPT, TOKENS, TOKENS, text, ignore_eos=True)


async def measure(target: Target, prompt: Prompt, users: int, seconds: float) -> dict[str, Any]:
    """One cell, after one answer to warm up."""
    async with target.client(SETTLE) as client:
        await client.send(prompt, 0.0)
        one = await boxed(client, users, seconds, repeat(prompt))
        client.timeout = SETTLE
        await client.send(prompt, 0.0)  # until what was given up is through
    return {"target": target.name, "users": users, **summarize([one])}


def ratio(result: Result, users: int) -> float | None:
    """How many times the ten-line server's tokens per second stage 07 gives; None if that server finished nothing."""
    rates = {cell["target"]: cell["tokens_per_second"] for cell in result["cells"] if cell["users"] == users}
    return rates["07"] / rates["ten_line_server"] if rates["ten_line_server"] else None


def table(result: Result) -> Sheet:
    """One row a cell."""
    rows = [
        (
            str(cell["users"]),
            server_name(cell["target"]),
            f"{cell['tokens_per_second']:.0f}",
            str(cell["completed"]),
            *(ms(cell["latency"][name]) for name in ("p50", "p95")),
            errors(cell["errors"]),
        )
        for cell in result["cells"]
    ]
    headings = ("users", "server", "tokens/s", "answers", "latency p50", "p95", "errors")
    return Sheet(f"Everybody asks for {result['tokens']} tokens", headings, rows)


SCENARIO = Scenario("long_answers", "256 tokens for 16 and 50 users", MODEL, 60.0, run, table, quick=False)
