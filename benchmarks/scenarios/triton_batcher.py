"""Triton's own dynamic batcher beside stage 05's: the same model in the same server, and the same people.

Ours is stage 05 in front of a Triton whose batcher is off, as it ships. Theirs is Triton alone, with its batcher turned
on in a copy of the model repository. Only one of them is up at a time.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.load import open_loop, poisson_arrivals
from benchmarks.predicting import Question, first_label, predicting, questions
from benchmarks.records import Run, server_side, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import ENVIRONMENT, ROOT, ModelMissing
from flo.servers import running_stage
from flo.triton import REPOSITORY, TritonError, free_port, running_triton

from .scenario import Result, Scenario

MODEL = "wine"
OURS, THEIRS, OFF = "05", "Triton", "off"
DELAYS = (0, 5, 20)
"""ms"""
WAYS = (*((OURS, delay) for delay in DELAYS), (THEIRS, OFF), *((THEIRS, delay) for delay in DELAYS))
RATES = (50, 200)
"""arrivals a second"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure both with every delay, and Triton without its batcher, at every rate."""
    cells: list[dict[str, Any]] = []
    try:
        for target, delay in WAYS:
            tell(f"starting {server_name(target)}, max_delay {delay}")
            with served(target, delay) as url:
                for rate in RATES:
                    tell(f"{server_name(target)}, max_delay {delay}, {rate} arrivals a second")
                    one, look = asyncio.run(arrive(target, url, rate, seconds))
                    which = {"target": target, "delay": delay, "rate": rate}
                    cells.append({**which, **summarize([one]), **server_side([look])})
    except TritonError as exc:
        raise ModelMissing(f"`flo triton` gets no server here: {exc}") from exc
    return {"cells": cells}


@contextmanager
def served(target: str, delay: int | str) -> Iterator[str]:
    """The address to ask, for the length of a `with` block. Raises `TritonError`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        if target == OURS:
            registry = Path(folder, "models.json")
            registry.write_text(json.dumps({"models": [entry(url)]}), encoding="utf-8")
            flags = ("--models", str(registry), "--max-delay-ms", str(delay), "--max-queue", "2000")
            with running_triton(port=port), running_stage(OURS, *flags, env=ENVIRONMENT) as server:
                yield server.url
        else:
            copy = shutil.copytree(REPOSITORY, Path(folder, "triton"))
            with (copy / MODEL / "config.pbtxt").open("a", encoding="utf-8") as config:
                config.write(dynamic_batching(delay))
            with running_triton(copy, port):
                load = f"{url}/v2/repository/models/{MODEL}/load"
                httpx.post(load, timeout=60, trust_env=False).raise_for_status()
                yield url


def entry(url: str) -> dict[str, Any]:
    """The model as the shipped registry has it, on another server."""
    models = json.loads((ROOT / "models" / "models.json").read_bytes())["models"]
    return {**next(model for model in models if model["name"] == MODEL), "url": url}


def dynamic_batching(delay: int | str) -> str:
    """What turns Triton's batcher on; nothing if it is to be off."""
    return "" if delay == OFF else f"\ndynamic_batching {{ max_queue_delay_microseconds: {int(delay) * 1000} }}\n"


async def arrive(target: str, url: str, rate: float, seconds: float) -> tuple[Run, tuple[Any, Any]]:
    """People who come when they come, after one who warms up; and the server's counters around them."""
    direct = target == THEIRS
    path, label = (f"/v2/models/{MODEL}/infer", triton_label) if direct else ("/predict", first_label)
    async with predicting(url, path, label) as (send, http):
        asked = map(triton_question, questions(MODEL)) if direct else questions(MODEL)
        counters = triton_counters if direct else stage_counters
        await send(next(asked), 0.0)
        before = await counters(http)
        one = await open_loop(send, asked, poisson_arrivals(rate, seconds, seed=1), seconds)
        return one, (before, await counters(http))


def triton_question(question: Question) -> Question:
    """The same input for Triton itself."""
    row = json.loads(question.body)["input_data"]["features"]
    inputs = [{"name": "features", "datatype": "FP32", "shape": [1, len(row)], "data": row}]
    outputs = [{"name": "scores", "parameters": {"classification": 1}}]
    return Question(json.dumps({"inputs": inputs, "outputs": outputs}).encode(), question.label)


def triton_label(answer: Any) -> str:
    """The likeliest label in Triton's words: score, place and label, with colons between."""
    return answer["outputs"][0]["data"][0].split(":", 2)[2]


async def stage_counters(http: httpx.AsyncClient) -> Any:
    """What `/stats` says."""
    return (await http.get("/stats")).json()


async def triton_counters(http: httpx.AsyncClient) -> Any:
    """Triton's statistics, by the names of `/stats`."""
    [model] = (await http.get(f"/v2/models/{MODEL}/stats")).json()["model_stats"]
    queue, passes = model["inference_stats"]["queue"], model["execution_count"]
    waited = {"requests": {"completed": queue["count"]}, "queue_seconds": queue["ns"] / 1e9}
    return {**waited, "forward_passes": passes, "row_steps": model["inference_count"]}


def table(result: Result, *rates: str) -> Sheet:
    """One row a cell."""
    rows = [
        (
            str(cell["rate"]),
            server_name(cell["target"]),
            OFF if cell["delay"] == OFF else f"{cell['delay']} ms",
            f"{cell['requests_per_second']:.0f}",
            *(ms(cell["latency"][name]) for name in ("p50", "p99")),
            f"{cell['rows_per_forward']:.1f}" if cell["rows_per_forward"] else "-",
            errors(cell["errors"]),
        )
        for cell in sorted(result["cells"], key=lambda cell: cell["rate"])
        if not rates or str(cell["rate"]) in rates
    ]
    headings = ("arrivals/s", "batcher of", "max_delay", "requests/s", "latency p50", "p99", "rows a pass", "errors")
    return Sheet("Open loop: one model in Triton, two batchers", headings, rows)


IDEA = "stage 05's batcher and Triton's own, on the same model"
SCENARIO = Scenario("triton_batcher", IDEA, MODEL, 6.0, run, table, quick=False)
