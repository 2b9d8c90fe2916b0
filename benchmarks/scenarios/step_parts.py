"""Where the time of a step of stage 07 goes, and how far that is from its floor, the matrices alone.

What is not the forward pass is told by the server's own `/stats`, after 16 streams over HTTP; what is, by a process
that runs its parts alone (`peers/step_floor.py`).
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.load import closed_loop
from benchmarks.prompts import fixed
from benchmarks.records import WrongAnswers
from benchmarks.sheet import Sheet, ms
from benchmarks.targets import ROOT, Target, model_directory, need, running_target

from .scenario import Result, Scenario

MODEL = "smollm2"
DTYPES, ROWS = ("float32", "bfloat16"), (16, 1)
PROMPT, TOKENS = "Once upon a time", 64
FLOOR_SECONDS = 300.0


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Each dtype and number of rows in turn; `seconds` is how long new streams begin."""
    need(MODEL)
    cells: list[dict[str, Any]] = []
    for dtype in DTYPES:
        tell(f"{dtype}: starting a server")
        with running_target("07", MODEL, "--dtype", dtype) as server:
            shares = {}
            for users in ROWS:
                tell(f"{dtype}: {users} streams")
                shares[users] = asyncio.run(outside(Target("07_stream", server.url, "/v1/completions"), users, seconds))
        for rows in ROWS:
            tell(f"{dtype}: the parts of a step of {rows} rows alone")
            command = [sys.executable, "-m", "benchmarks.peers.step_floor", model_directory(MODEL), dtype, str(rows)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=FLOOR_SECONDS, check=True)
            cells.append({"dtype": dtype, "rows": rows, **json.loads(done.stdout), "outside": shares[rows]})
    return {"cells": cells}


async def outside(target: Target, users: int, seconds: float) -> dict[str, float]:
    """The share of all time that each part of a step had, by the server's own account."""
    async with target.client() as client:
        before = (await client.get("/stats"))["step_seconds"]
        done = await closed_loop(client.send, fixed(PROMPT, TOKENS), users, seconds, 10_000)
        after = (await client.get("/stats"))["step_seconds"]
    if wrong := [record for record in done.records if record.outcome != "ok"]:
        raise WrongAnswers(f"stage 07: {wrong[0].outcome} {wrong[0].detail}")
    took = {part: after[part] - before[part] for part in after if part != "not_forward"}
    return {part: each / sum(took.values()) for part, each in took.items()}


def table(result: Result) -> Sheet:
    """A row a cell."""
    rows = [
        (
            cell["dtype"],
            str(cell["rows"]),
            ms(cell["step"]),
            ms(cell["matrices"]),
            ms(cell["attention"]),
            ms(cell["forward"] - cell["matrices"] - cell["attention"]),
            ms(cell["step"] - cell["forward"]),
            f"{1 - cell['outside']['forward']:.1%}",
        )
        for cell in result["cells"]
    ]
    headings = ("weights", "rows", "a step", "matrices alone", "attention alone", "rest of the forward pass",
                "packing, sampling", "share that is not forward, over HTTP")  # fmt: skip
    return Sheet("A decode step of stage 07", headings, rows)


SCENARIO = Scenario("step_parts", "where the time of a step goes", MODEL, 10.0, run, table, quick=False)
