"""What a token costs early and late in a stream: stage 03, which has no cache, against stage 06, which has one.

Both servers are up and take turns, one stream of 256 tokens at a time, after a prompt whose answer is a long text.
Some tokens have no text, so frames are not tokens: shorter streams tell first how many frames the first 64, 128 and 192
tokens make. Counters must show exactly the positions that a stream without a cache, or with one, computes.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.load import Client
from benchmarks.prompts import Prompt
from benchmarks.records import OK, Record, WrongAnswers
from benchmarks.sheet import Sheet, ms, server_name, times
from benchmarks.targets import Target, running_target

from .no_cache import attended, with_cache
from .scenario import Result, Scenario

MODEL = "tiny-opt"
PROMPT = "Count from 0 to 99:"
QUARTER = 64
TOKENS = tuple(range(QUARTER, 4 * QUARTER + 1, QUARTER))


POSITIONS = {"03": attended, "06": with_cache}
"""what so many tokens after a prompt have to compute"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Ask for each number of tokens in turn, until the time of both cells is up."""
    tell("starting the servers")
    with ExitStack() as stack:
        targets = {name: stack.enter_context(running_target(name, MODEL)).lanes()[-1] for name in POSITIONS}
        return {"cells": asyncio.run(measure(targets, seconds * len(targets), tell))}


async def measure(targets: dict[str, Target], seconds: float, tell: Callable[[str], object]) -> list[dict[str, Any]]:
    """The cells: medians over the rounds."""
    took: dict[str, list[list[float]]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(target.client()) for name, target in targets.items()}
        prompt = {name: (await one(name, client, 1))[1] for name, client in clients.items()}  # and the model is loaded
        frames = {
            name: [len((await one(name, client, tokens))[0].pieces) for tokens in TOKENS]
            for name, client in clients.items()
        }
        end = time.monotonic() + seconds
        while not took or time.monotonic() < end:
            for name, client in clients.items():
                tell(f"stage {name}: round {len(took[name]) + 1}")
                record, positions = await one(name, client, TOKENS[-1])
                if positions != (expected := POSITIONS[name](prompt[name], TOKENS[-1])):
                    raise WrongAnswers(f"stage {name} computed {positions} positions, not {expected}")
                took[name].append(quarters(record, frames[name]))
    return [cell(name, took[name]) for name in clients]


async def one(name: str, client: Client, tokens: int) -> tuple[Record, int]:
    """One stream, and its positions. Raises `WrongAnswers` unless it has exactly its tokens."""
    before, now = await client.get("/stats"), asyncio.get_running_loop().time()
    record = await client.send(Prompt(PROMPT, tokens, tokens, ignore_eos=True), now)
    after = await client.get("/stats")
    if record.outcome != OK:
        raise WrongAnswers(f"stage {name}: {tokens} tokens: {record.outcome} {record.detail}")
    return record, after["positions_attended"] - before["positions_attended"]


def quarters(record: Record, frames: Sequence[int]) -> list[float]:
    """Seconds a token in each quarter of a stream, whose quarters end with these frames."""
    ends = [record.scheduled, *(record.pieces[count - 1] for count in frames)]
    return [(late - early) / QUARTER for early, late in pairwise(ends)]


def cell(target: str, rounds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """One server: what a token takes in each quarter."""
    each = [median(quarter) for quarter in zip(*rounds, strict=True)]
    return {
        "target": target,
        "rounds": len(rounds),
        "seconds_per_token": each,
        "growth": each[-1] / each[0],
        "seconds": median(sum(found) * QUARTER for found in rounds),
    }


def table(result: Result) -> Sheet:
    """One row a server."""
    rows = [
        (
            server_name(cell["target"]),
            *(ms(seconds) for seconds in cell["seconds_per_token"]),
            times(cell["growth"]),
            ms(cell["seconds"]),
        )
        for cell in result["cells"]
    ]
    spans = [f"tokens {last - QUARTER + 1} to {last}" for last in TOKENS]
    headings = ("server", *spans, "last of first", f"all {TOKENS[-1]}")
    return Sheet("One stream at a time: what a token takes", headings, rows, words=1)


SCENARIO = Scenario(
    "streams", "a token early and late in a stream, without a cache and with one", MODEL, 20.0, run, table
)
