"""Static against continuous admission: stage 07 twice, with the same cache, and only the scheduler swapped.

Statically, a batch is filled once and waits for its longest answer; the places of those who have finished stay empty.
Lengths are lognormal, as people's are: most answers are short, some are long. Both servers get the same questions. The
model is a real one, for which a step costs about the same whether places are filled or not.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.load import closed_loop
from benchmarks.peers.static_scheduler import SETTINGS
from benchmarks.prompts import Prompt
from benchmarks.records import Run, server_side, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import Target, need, running_target
from benchmarks.turns import HALVES, in_turns

from .scenario import Result, Scenario

MODEL = "smollm2"
USERS = 48
"""three for each place in the batch"""
PROMPT = "Once upon a time"
MEDIAN, SPREAD, MOST = 20, 1.0, 200
"""tokens in an answer, the standard deviation of their logarithm, and the longest answer"""
MOST_REQUESTS = 20_000
CONTINUOUS, STATIC = "continuous_admission", "static_admission"


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure both."""
    need(MODEL)
    tell("starting the servers")
    with ExitStack() as stack:
        targets = [
            stack.enter_context(running_target("07", MODEL, *flags(SETTINGS), called=CONTINUOUS)),
            stack.enter_context(running_target(STATIC, MODEL)),
        ]

        async def half(target: Target, number: int) -> tuple[Run, tuple[Any, Any]]:
            async with target.client() as client:
                before, warm_up = await client.get("/stats"), seconds / HALVES * 0.3
                asked = mixed(seed=number)
                one = await closed_loop(client.send, asked, USERS, seconds / HALVES - warm_up, MOST_REQUESTS, warm_up)
                return one, (before, await client.get("/stats"))

        found = in_turns(targets, half, tell)
    return {"users": USERS, "seats": SETTINGS["max_num_seqs"], "cells": [cell(name, found[name]) for name in found]}


def mixed(seed: int) -> Iterator[Prompt]:
    """The same prompt without end, for answers of lognormal lengths."""
    draw = random.Random(seed)
    while True:
        tokens = min(MOST, max(1, round(draw.lognormvariate(math.log(MEDIAN), SPREAD))))
        yield Prompt(PROMPT, tokens, tokens, ignore_eos=True)


def flags(settings: dict[str, Any]) -> list[str]:
    """The settings of an engine as flags of the stage."""
    told = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        told += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return told


def cell(name: str, halves: list[tuple[Run, tuple[Any, Any]]]) -> dict[str, Any]:
    """One way of admission."""
    runs, looks = zip(*halves, strict=True)
    return {"target": name, **summarize(runs), **server_side(looks)}


def ratio(result: Result) -> float:
    """How many times the tokens per second of static admission continuous admission gives."""
    rates = {cell["target"]: cell["tokens_per_second"] for cell in result["cells"]}
    return rates[CONTINUOUS] / rates[STATIC]


def table(result: Result) -> Sheet:
    """One row a way."""
    rows = [
        (
            server_name(cell["target"]),
            f"{cell['tokens_per_second']:.0f}",
            f"{cell['rows_per_forward']:.1f}" if cell["rows_per_forward"] else "-",
            *(ms(cell["latency"][name]) for name in ("p50", "p95")),
            errors(cell["errors"]),
        )
        for cell in result["cells"]
    ]
    title = f"{result['users']} users, {result['seats']} places in the batch, answers of different lengths"
    return Sheet(title, ("stage 07 with", "tokens/s", "rows a pass", "latency p50", "p95", "errors"), rows, words=1)


SCENARIO = Scenario(
    "admission", "static against continuous admission, with the same cache", MODEL, 60.0, run, table, quick=False
)
