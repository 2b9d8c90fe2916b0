"""How long the web server keeps its other callers waiting while it generates: model in a child, or in a thread.

Two looks at the same thing. A client asks an async route that does nothing, fifty times a second, and counts from
the moment each question was due. Inside, a task sleeps again and again and notes how late it wakes. Three servers
take turns: stage 01, stage 01 with the model on a thread of the web process, and the ten-line server. Between the
first two the process boundary is the only difference. torch lets go of the GIL inside its kernels, so how much that
matters is measured, not assumed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from itertools import repeat

from benchmarks.load import Client, closed_loop, open_loop
from benchmarks.prompts import Prompt, count, counting
from benchmarks.records import OK, Record, Run, spread, summarize
from benchmarks.sheet import Sheet, ms, server_name
from benchmarks.targets import Target, running_targets

from .scenario import Result, Scenario

MODEL = "tiny-opt"
SERVERS = ("model_in_child", "model_in_thread", "ten_line_server")
USERS = (0, 1, 16)
SHORTEST, LONGEST = 30, 49
"""numbers in an answer: long ones, so that there is always somebody's generation going on"""
HEARTBEAT = 0.02
"""seconds between two questions"""
ROUNDS = 2


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure every server, idle and under load."""
    tell("starting the servers")
    with running_targets(SERVERS, MODEL) as targets:
        beats: dict[tuple[int, str], list[float]] = defaultdict(list)
        lags: dict[tuple[int, str], list[float]] = defaultdict(list)
        loads: dict[tuple[int, str], list[Run]] = defaultdict(list)
        for half in range(ROUNDS):
            for users in USERS:
                for target in targets[:: -1 if half else 1]:
                    tell(f"{target.name}: {users} users, half {half + 1} of {ROUNDS}")
                    load, beat, lag = asyncio.run(look(target, users, seconds / ROUNDS))
                    key = users, target.name
                    loads[key].append(load)
                    beats[key] += beat
                    lags[key] += lag
    return {
        "cells": [
            {
                "server": server,
                "users": users,
                "heartbeat": spread(beats[users, server]),
                "lag": spread(lags[users, server]),
                "tokens_per_second": summarize(loads[users, server])["tokens_per_second"],
            }
            for users in USERS
            for server in SERVERS
        ]
    }


async def look(target: Target, users: int, seconds: float) -> tuple[Run, list[float], list[float]]:
    """Watch one server for a while: the load put on it, the latencies of its heartbeats, and its event loop's lags."""
    async with Client(target.url) as client, asyncio.TaskGroup() as group:
        clock = asyncio.get_running_loop().time
        await client.send(count(3, 9), 0.0)

        async def beat(_: Prompt, scheduled: float) -> Record:
            await client.get("/heartbeat")
            return Record(scheduled, clock(), OK)

        load = group.create_task(
            closed_loop(client.send, counting(SHORTEST, LONGEST, 1), users, seconds + 0.5, 10_000, 0.5)
        )
        await asyncio.sleep(0.5)  # until everybody has asked
        lag = group.create_task(client.get("/lag", seconds=seconds))
        dues = [HEARTBEAT * number for number in range(int(seconds / HEARTBEAT))]
        beats = await open_loop(beat, repeat(count(3, 9)), dues, seconds)
    return load.result(), [record.latency for record in beats.records], lag.result()


HEADINGS = ("users", "server", "route p50", "p99", "max", "loop late p50", "p99", "max", "tokens/s")


def table(result: Result) -> Sheet:
    """One row a cell."""
    rows = [
        (
            f"{cell['users']}",
            server_name(cell["server"]),
            *(ms(cell[look][name]) for look in ("heartbeat", "lag") for name in ("p50", "p99", "max")),
            f"{cell['tokens_per_second']:.0f}",
        )
        for cell in result["cells"]
    ]
    return Sheet("What generation does to everybody else's requests", HEADINGS, rows)


def ratio(result: Result, server: str, users: int, look: str, name: str) -> float:
    """How many times longer a server keeps others waiting than the one with the model in a child."""
    found = {cell["server"]: cell[look][name] for cell in result["cells"] if cell["users"] == users}
    return found[server] / found["model_in_child"]


SCENARIO = Scenario(
    "gil", "what generation does to the event loop, in a child and in a thread", MODEL, 10.0, run, table, quick=False
)
