"""The same comparison with a real model, where a token costs tens of milliseconds: what batching is worth there.

Everybody asks for exactly 32 tokens, in one piece, from every server, and again when they are there. A cell is boxed:
nobody asks after the first third of its time, and what has not come at its end is given up and counted as a timeout. A
rate is tokens over the time until the last answer, so no server is charged for what a window would have cut off.
Stage 03 computes every row from its first token at every step, and with a model of this size that is seen.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.load import Client, closed_loop
from benchmarks.prompts import Prompt, fixed
from benchmarks.records import Record, Run, WrongAnswers, server_side, summarize
from benchmarks.targets import Target, existing_stages, need, running_targets

from .scenario import Result, Scenario
from .users import draw, table

MODEL = "smollm2"
USERS = (1, 4, 16)
PROMPT, TOKENS = "Once upon a time", 32
ASKING = 1 / 3
"""of a cell's time"""
MOST_REQUESTS = 5000
SETTLE = 120.0
"""seconds in which a server has to finish what was given up"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure every stage at every number of users, in an order that alternates."""
    need(MODEL)
    cells: dict[tuple[int, str], dict[str, Any]] = {}
    tell("starting the servers")
    with running_targets(existing_stages(), MODEL) as targets:
        for place, users in enumerate(USERS):
            for target in targets[:: -1 if place % 2 else 1]:
                tell(f"{target.name}: {users} users, {seconds:g} s at most")
                cells[users, target.name] = asyncio.run(measure(target, users, seconds))
        return {"cells": [cells[users, target.name] for users in USERS for target in targets]}


async def measure(target: Target, users: int, seconds: float) -> dict[str, Any]:
    """One cell."""
    async with Client(target.url, target.path, SETTLE) as client:
        await client.send(next(fixed(PROMPT, 2)), 0.0)  # the first pass of a server is slower than any other
        before = await client.get("/stats")
        one = await boxed(client, users, seconds)
        await settle(client)
        after = await client.get("/stats")
    summary = summarize([one])
    if not summary["errors"]:
        check_tokens(target.name, summary["completed"], before, after)
    return {"target": target.name, "users": users, **summary, **server_side([(before, after)])}


async def boxed(client: Client, users: int, seconds: float, prompts: Iterator[Prompt] | None = None) -> Run:
    """A closed loop in which nobody waits past the end of the box; its window lasts until the last answer."""
    asked = prompts or fixed(PROMPT, TOKENS)
    clock = asyncio.get_running_loop().time
    end = clock() + seconds

    async def send(prompt: Prompt, scheduled: float) -> Record:
        client.timeout = max(0.001, end - clock())
        return await client.send(prompt, scheduled)

    one = await closed_loop(send, asked, users, ASKING * seconds, MOST_REQUESTS)
    return Run(one.records, one.began, max(record.finished for record in one.records) - one.began)


async def settle(client: Client) -> None:
    """Wait until the server has nothing to do; it may still be busy with what was given up."""
    for _ in range(int(SETTLE / 0.05)):
        stats = await client.get("/stats")
        if not stats["running"] + stats["queued"]:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"a server was still busy after {SETTLE:g} s")


def check_tokens(server: str, requests: int, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raises `WrongAnswers` unless each request got exactly its tokens: a row that is not idle gets one a step."""
    steps, idle = (after[name] - before[name] for name in ("row_steps", "idle_row_steps"))
    if steps - idle != requests * TOKENS:
        raise WrongAnswers(f"stage {server} made {steps - idle} tokens for {requests} requests of {TOKENS}")


SCENARIO = Scenario(
    "smollm2", "the same with a real model, each cell boxed", MODEL, 60.0, run, table, draw, quick=False
)
