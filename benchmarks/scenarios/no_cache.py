"""What stage 03 pays for having no cache: every step computes all positions of a row again.

One stream at a time, the prompt a single token. n tokens after p attend n*p + n(n-1)/2 positions, and the server's
counters have to say exactly that. With a cache each position would be fed once, and the last token never: p + n - 1.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.load import Client
from benchmarks.prompts import Prompt
from benchmarks.records import OK, WrongAnswers
from benchmarks.sheet import Sheet, ms
from benchmarks.targets import running_target

from .scenario import Result, Scenario

MODEL = "tiny-opt"
STAGE = "03"
PROMPT = "7"
TOKENS = (20, 128, 512)


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Ask for each number of tokens in turn, until the time is up."""
    tell(f"starting stage {STAGE}")
    with running_target(STAGE, MODEL) as target:
        [*_, streaming] = target.lanes()
        return {"cells": asyncio.run(measure(streaming.url, streaming.path, seconds, tell))}


async def measure(url: str, path: str, seconds: float, tell: Callable[[str], object]) -> list[dict[str, Any]]:
    """The cells: medians over the rounds."""
    took: dict[int, list[float]] = defaultdict(list)
    async with Client(url, path) as client:
        _, prompt = await one(client, 1)  # one token attends the prompt, once
        end = time.monotonic() + seconds
        while not took or time.monotonic() < end:
            for tokens in TOKENS:
                tell(f"{tokens} tokens, round {len(took[tokens]) + 1}")
                elapsed, positions = await one(client, tokens)
                if positions != attended(prompt, tokens):
                    raise WrongAnswers(f"{tokens} after {prompt} attended {positions}, not {attended(prompt, tokens)}")
                took[tokens].append(elapsed)
    return [cell(prompt, tokens, took[tokens]) for tokens in TOKENS]


async def one(client: Client, tokens: int) -> tuple[float, int]:
    """Seconds and positions attended of one stream. Raises `WrongAnswers` unless it has exactly its tokens."""
    before, now = await client.get("/stats"), asyncio.get_running_loop().time()
    record = await client.send(Prompt(PROMPT, tokens, tokens, ignore_eos=True), now)
    after = await client.get("/stats")
    passes, positions = (after[name] - before[name] for name in ("forward_passes", "positions_attended"))
    if record.outcome != OK or passes != tokens:
        raise WrongAnswers(f"{tokens} tokens: {record.outcome} {record.detail} after {passes} passes")
    return record.latency, positions


def attended(prompt: int, tokens: int) -> int:
    """Positions that all steps together compute: the prompt and what has been generated, again in each."""
    return tokens * prompt + tokens * (tokens - 1) // 2


def with_cache(prompt: int, tokens: int) -> int:
    """Positions that would be fed if none was ever computed twice."""
    return prompt + tokens - 1


def cell(prompt: int, tokens: int, took: list[float]) -> dict[str, Any]:
    """One number of tokens."""
    seconds = median(took)
    return {
        "prompt": prompt,
        "tokens": tokens,
        "attended": attended(prompt, tokens),
        "with_cache": with_cache(prompt, tokens),
        "ratio": attended(prompt, tokens) / with_cache(prompt, tokens),
        "rounds": len(took),
        "seconds": seconds,
        "seconds_per_token": seconds / tokens,
    }


HEADINGS = ("new tokens", "positions attended", "with a cache", "ratio", "seconds", "a token")


def table(result: Result) -> Sheet:
    """One row a number of tokens."""
    rows = [
        (
            f"{cell['tokens']}",
            f"{cell['attended']:,}",
            f"{cell['with_cache']:,}",
            f"{cell['ratio']:.1f} times",
            ms(cell["seconds"]),
            ms(cell["seconds_per_token"]),
        )
        for cell in result["cells"]
    ]
    return Sheet(f"One stream of stage {STAGE}, without a cache", HEADINGS, rows, words=0)


SCENARIO = Scenario("no_cache", "what a stream costs without a cache, by its length", MODEL, 20.0, run, table)
