"""What a queue in front of the model is worth: stages 04 and 05 with the same users, who all ask the same model.

Both servers are up the whole time and take turns; each cell is measured in two halves, the second in reverse order.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from benchmarks.load import closed_loop
from benchmarks.predicting import predicting, questions
from benchmarks.records import Run, server_side, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import ENVIRONMENT
from flo.servers import running_stage

from .scenario import Result, Scenario

MODEL = "shapes"
STAGES = ("04", "05")
USERS = (1, 8, 32)
HALVES = 2
MOST_REQUESTS = 20_000


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure both stages at every number of users."""
    runs: dict[tuple[int, str], list[Run]] = defaultdict(list)
    looks: dict[tuple[int, str], list[Any]] = defaultdict(list)
    with ExitStack() as stack:
        tell("starting the servers")
        urls = {name: stack.enter_context(running_stage(name, env=ENVIRONMENT)).url for name in STAGES}
        for half in range(HALVES):
            for users in USERS:
                for name in STAGES[:: -1 if half else 1]:
                    tell(f"stage {name}: {users} users, half {half + 1} of {HALVES}")
                    one, look = asyncio.run(half_a_cell(urls[name], users, seconds / HALVES))
                    runs[users, name].append(one)
                    looks[users, name].append(look)
    cells = [
        {"target": name, "users": users, **summarize(runs[users, name]), **server_side(looks[users, name])}
        for users in USERS
        for name in STAGES
    ]
    return {"cells": cells}


async def half_a_cell(url: str, users: int, seconds: float) -> tuple[Run, tuple[Any, Any]]:
    """One run of a closed loop, and what `/stats` said around it. The model is loaded in the warm-up."""
    async with predicting(url) as (send, http):
        before = (await http.get("/stats")).json()
        one = await closed_loop(send, questions(MODEL), users, seconds * 0.7, MOST_REQUESTS, seconds * 0.3)
        return one, (before, (await http.get("/stats")).json())


def table(result: Result, *targets: str) -> Sheet:
    """One row a cell."""
    rows = [
        (
            str(cell["users"]),
            server_name(cell["target"]),
            f"{cell['requests_per_second']:.0f}",
            *(ms(cell["latency"][name]) for name in ("p50", "p95", "p99")),
            f"{cell['rows_per_forward']:.1f}" if cell["rows_per_forward"] else "-",
            errors(cell["errors"]),
        )
        for cell in result["cells"]
        if not targets or cell["target"] in targets
    ]
    headings = ("users", "server", "requests/s", "latency p50", "p95", "p99", "rows a pass", "errors")
    return Sheet("Closed loop: everybody asks the same image classifier", headings, rows)


SCENARIO = Scenario("batching", "a pass for each input against a batch", MODEL, 10.0, run, table)
