"""What a queue costs: a step of stage 07's scheduler, with few and with many who wait. No server and no model.

The pool has no room for one more, so the first in line is looked at in every step, and does not fit.
"""

import time
from collections.abc import Callable
from importlib import import_module
from statistics import median
from typing import Any

from benchmarks.sheet import Sheet

from .scenario import Result, Scenario

WAITING, RUNNING = (10, 100, 1_000, 10_000), (16, 256)
LENGTH, STEPS, BLOCK = 48, 200, 256
"""so that nobody ever needs a second block"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Every length of the queue with every size of the batch."""
    cells: list[dict[str, Any]] = []
    for running in RUNNING:
        for waiting in WAITING:
            tell(f"{running} running, {waiting:,} waiting")
            took = steps(running, waiting)
            cells.append({"running": running, "waiting": waiting, "seconds": median(took)})
    return {"cells": cells}


def steps(running: int, waiting: int) -> list[float]:
    """Seconds of each step: `schedule`, and `update` with a token for everybody."""
    stage = "stages.07_paged_attention"  # no identifier, so no import statement
    limits, messages, pool, manager, request, scheduler, step = (
        import_module(f"{stage}.{name}")
        for name in ("limits", "messages", "block_pool", "kv_cache_manager", "request", "scheduler", "step")
    )
    blocks = 2 * running + 1  # one for each, and what the watermark keeps for those who run
    size = limits.Limits(max_model_len=4096, block_size=BLOCK, num_blocks=blocks, vocab_size=1000)
    one = scheduler.Scheduler(
        manager.KVCacheManager(pool.BlockPool(blocks), BLOCK), size, running * LENGTH, running + 1, waiting + running
    )
    greedy = messages.SamplingParams(STEPS + 1, temperature=0.0, ignore_eos=True)
    for number in range(running + waiting):
        ids = [number % 1000, *range(1, LENGTH)]
        one.add(request.Request.of(messages.Add(str(number), ids, greedy, 0.0)))
    took: list[float] = []
    for _ in range(STEPS):
        began = time.perf_counter()
        decided = one.schedule()
        one.update(decided, [step.Sampled(5)] * len(decided.scheduled))
        took.append(time.perf_counter() - began)
        if len(decided.scheduled) != running or len(one.waiting) != waiting:
            raise RuntimeError(f"{len(decided.scheduled)} ran and {len(one.waiting)} waited")
    return took[1:]


def ratio(result: Result, running: int) -> float:
    """How many times longer a step takes with the longest queue than with the shortest."""
    seconds = {cell["waiting"]: cell["seconds"] for cell in result["cells"] if cell["running"] == running}
    return seconds[max(WAITING)] / seconds[min(WAITING)]


def table(result: Result) -> Sheet:
    """One row a cell."""
    rows = [
        (f"{cell['running']}", f"{cell['waiting']:,}", f"{cell['seconds'] * 1e6:,.0f} µs") for cell in result["cells"]
    ]
    return Sheet("A step of stage 07's scheduler", ("running", "waiting", "a step"), rows)


SCENARIO = Scenario("waiting", "a step of a scheduler with few and many waiting", "no model", 1.0, run, table)
