"""What one more row adds to a step of stage 03: seconds of its worker, at 1 to 16 rows.

`/generate` admits all prompts of a request at once, so n equal prompts are n rows from the first step to the last, and
the counters behind `/stats` say how long the steps took. Rows have no cache: a step computes all their positions.
Numbers of rows take turns, and the median over the rounds counts.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.load import Client
from benchmarks.records import WrongAnswers
from benchmarks.sheet import Sheet, ms, times
from benchmarks.targets import ModelMissing, need, running_target

from .scenario import Result, Scenario

STAGE = "03"
PROMPTS = {"tiny-opt": "Count from 3 to 9:", "smollm2": "Once upon a time, in a city"}
"""a model, and a prompt of about eight tokens"""
ROWS = (1, 2, 4, 8, 16)
STEPS = 8
COUNTERS = ("forward_passes", "row_steps", "positions_attended", "forward_seconds")


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure with every model that is there."""
    result: Result = {"models": [], "missing": [], "cells": []}
    for model, prompt in PROMPTS.items():
        try:
            need(model)
        except ModelMissing as exc:
            result["missing"].append(str(exc))
            continue
        tell(f"starting stage {STAGE} with {model}")
        with running_target(STAGE, model) as target:
            result["cells"] += asyncio.run(measure(target.url, model, prompt, seconds, tell))
        result["models"].append(model)
    return result


async def measure(url: str, model: str, prompt: str, seconds: float, tell: Callable[[str], object]) -> list[Any]:
    """Rounds over all numbers of rows, until the time is up."""
    grown: dict[int, list[dict[str, float]]] = defaultdict(list)
    async with Client(url) as client:
        await steps(client, prompt, 1)  # the first pass of a server is slower than any other
        end, forth = time.monotonic() + seconds, True
        while not grown or time.monotonic() < end:
            for rows in ROWS[:: 1 if forth else -1]:
                tell(f"{model}: {rows} rows, round {len(grown[rows]) + 1}")
                grown[rows].append(await steps(client, prompt, rows))
            forth = not forth
    return [cell(model, rows, grown[rows]) for rows in ROWS]


async def steps(client: Client, prompt: str, rows: int) -> dict[str, float]:
    """By how much each counter grew over a few steps. Raises `WrongAnswers` if it was not exactly those."""
    before = await client.get("/stats")
    body = {"prompts": [prompt] * rows, "max_new_tokens": STEPS, "ignore_eos": True}
    await client.post("/generate", body)
    after = await client.get("/stats")
    grown = {name: after[name] - before[name] for name in COUNTERS}
    if (grown["forward_passes"], grown["row_steps"]) != (STEPS, STEPS * rows):
        raise WrongAnswers(f"{STEPS} steps of {rows} rows were {grown}")
    return grown


def cell(model: str, rows: int, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The median step, and how many positions each of its rows had on average."""
    return {
        "model": model,
        "rows": rows,
        "rounds": len(rounds),
        "step_seconds": median(one["forward_seconds"] / one["forward_passes"] for one in rounds),
        "positions": rounds[0]["positions_attended"] / rounds[0]["row_steps"],
    }


def step(result: Result, model: str, rows: int) -> float:
    """Seconds of a step."""
    [seconds] = [cell["step_seconds"] for cell in result["cells"] if (cell["model"], cell["rows"]) == (model, rows)]
    return seconds


def one_more(result: Result, model: str) -> float:
    """Seconds that a row more adds, between the smallest and the largest number of rows."""
    return (step(result, model, ROWS[-1]) - step(result, model, ROWS[0])) / (ROWS[-1] - ROWS[0])


def table(result: Result, *models: str) -> Sheet:
    """One row a number of rows; of all models, or of those named."""
    rows = [
        (
            cell["model"],
            f"{cell['rows']}",
            ms(cell["step_seconds"]),
            times(cell["step_seconds"] / step(result, cell["model"], 1)),
            ms(cell["step_seconds"] / cell["rows"]),
            f"{cell['rows'] / cell['step_seconds']:.0f}",
        )
        for cell in result["cells"]
        if not models or cell["model"] in models
    ]
    title = "; ".join([f"One step of stage {STAGE}, without a cache", *result["missing"]])
    return Sheet(title, ("model", "rows", "one step", "of one row's", "a row's share", "tokens/s"), rows)


SCENARIO = Scenario("step_cost", "what one more row adds to a step", " and ".join(PROMPTS), 20.0, run, table)
