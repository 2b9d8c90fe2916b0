"""Six requests on four slots: who holds a slot when, in a batch that waits for its slowest and in one that does not.

Four prompts come at once, as one request, and fill the batch; E and F come a little later, one by one, at seeded
moments. The traces of both servers tell the rest. Of several looks the one counts in which E and F were the most
punctual, whatever came of it. The length of a cell plays no role.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gantt import draw
from benchmarks.load import Client, open_loop, poisson_arrivals
from benchmarks.prompts import count
from benchmarks.records import OK, WrongAnswers
from benchmarks.sheet import Sheet, ms, server_name
from benchmarks.targets import Target, running_target
from benchmarks.timeline import Held, read_trace, timeline

from .scenario import Result, Scenario

MODEL = "tiny-opt"
STAGES = ("02", "03")
SLOTS = 4
PROMPTS = {
    "A": count(10, 16),
    "B": count(20, 68),
    "C": count(30, 53),
    "D": count(40, 54),
    "E": count(50, 73),
    "F": count(60, 72),
}
AT_ONCE = ("A", "B", "C", "D")
LATER = ("E", "F")
RATE, SEED = 40.0, 5
"""arrivals a second of E and F"""
LOOKS = 5


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Trace one server after the other."""
    cells: list[dict[str, Any]] = []
    late: dict[str, float] = {}
    for stage in STAGES:
        tell(f"six requests for stage {stage}")
        with TemporaryDirectory(prefix="slots-") as directory:
            trace = Path(directory, "trace.json")
            with running_target(stage, MODEL, "--batch-size", f"{SLOTS}", "--trace", f"{trace}") as target:
                asyncio.run(warm_up(target))
                looks = [look(target, trace) for _ in range(LOOKS)]
        best = min(looks, key=lateness)
        late[stage] = lateness(best)
        cells += [{"target": stage, **one.cell()} for one in best]
    return {"slots": SLOTS, "later": LATER, "late": late, "cells": cells}


def look(target: Target, trace: Path) -> list[Held]:
    """What came of six requests."""
    before = len(trace.read_text(encoding="utf-8"))
    asyncio.run(six_requests(target))
    answers = {name: (prompt.answer or "", prompt.tokens) for name, prompt in PROMPTS.items()}
    return timeline(read_trace(trace.read_text(encoding="utf-8")[before:]), answers)


def lateness(held: list[Held]) -> float:
    """By how much the later of the late comers missed its moment, in seconds: the fault of a busy machine."""
    queued = {one.name: one.queued for one in held}
    return max(abs(queued[name] - due) for name, due in zip(LATER, arrivals(), strict=True))


async def warm_up(target: Target) -> None:
    """The first pass of a server is slower than any other."""
    async with Client(target.url) as client:
        await client.send(count(1, 5), 0.0)


async def six_requests(target: Target) -> None:
    """Send them. Raises `WrongAnswers`."""
    async with Client(target.url) as client:
        four = {"prompts": [PROMPTS[name].text for name in AT_ONCE], "max_new_tokens": 50}
        answers = asyncio.create_task(client.post("/generate", four))
        later = (PROMPTS[name] for name in LATER)
        run = await open_loop(client.send, later, arrivals(), 1.0)
        if (await answers)["generated_texts"] != [PROMPTS[name].answer for name in AT_ONCE]:
            raise WrongAnswers(f"stage {target.name}: {await answers}")
        if wrong := [record for record in run.records if record.outcome != OK]:
            raise WrongAnswers(f"stage {target.name}: {wrong[0].outcome} {wrong[0].detail}")


def arrivals() -> list[float]:
    """When E and F come, in seconds."""
    return poisson_arrivals(RATE, 60.0, SEED)[: len(LATER)]


def table(result: Result) -> Sheet:
    """One row a request: how long it waited, held a slot, and held it for nothing, at each stage."""
    stages = list(dict.fromkeys(cell["target"] for cell in result["cells"]))
    found = {(cell["target"], cell["name"]): cell for cell in result["cells"]}
    rows = [
        (
            name,
            f"{found[stages[0], name]['tokens']}",
            *(ms(found[stage, name][what]) for stage in stages for what in ("waited", "held", "idle")),
        )
        for name in PROMPTS
    ]
    each = [f"{server_name(stage)}: {what}" for stage in stages for what in ("waited", "held a slot", "of that idle")]
    return Sheet("Six requests on four slots", ("request", "tokens", *each), rows, words=1)


SCENARIO = Scenario("slots", "who holds a slot when: six requests on four slots", MODEL, 1.0, run, table, draw)
