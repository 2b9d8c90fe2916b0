"""What more slots are worth: five models, of which the first is asked most, on stages 04, 05 and 06.

The second is asked half as often as the first, the third a third as often, and so on (Zipf). People arrive at random,
the same people with the same questions for every server; each server is started for its own number of slots.
"""

import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.load import open_loop, poisson_arrivals
from benchmarks.predicting import Question, predicting
from benchmarks.records import Run, summarize
from benchmarks.sheet import Sheet, errors, ms, server_name
from benchmarks.targets import ENVIRONMENT, ROOT
from flo.servers import running_stage

from .scenario import Result, Scenario

STAGES = ("04", "05", "06")
SLOTS = (2, 3, 5)
RATE = 10
"""arrivals a second"""
MODELS = {
    "shapes": "torchvision",
    "intents": "transformers",
    "digits": "torchvision",
    "iris": "onnx",
    "intents again": "transformers",
}
"""id -> framework, the most popular first; the last is a checkpoint that is there already, under an id of its own"""


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Measure every stage with every number of slots."""
    cells: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        write_registry(Path(folder))
        for slots, stage in product(SLOTS, STAGES):
            tell(f"stage {stage} with {slots} slots")
            with running_stage(stage, "--models", folder, "--slots", str(slots), env=ENVIRONMENT) as server:
                one, before, after = asyncio.run(arrive(server.url, seconds))
            cells.append({"target": stage, "slots": slots, **summarize([one]), **lookups(before, after)})
    return {"cells": cells}


def write_registry(folder: Path) -> None:
    """A `models.json` with the five."""
    common = {"type": "any", "version": "1", "description": ""}
    models = [
        {"id": name, "name": str(ROOT / "models" / name.partition(" ")[0]), "framework": framework, **common}
        for name, framework in MODELS.items()
    ]
    (folder / "models.json").write_text(json.dumps({"models": models}), encoding="utf-8")


def asked(model_id: str) -> list[Any]:
    """The samples of a model, sent under this id."""
    paths = sorted((ROOT / "models" / "samples").glob(f"{model_id.partition(' ')[0]}-*.json"))
    bodies = [{**json.loads(path.read_bytes()), "model_id": model_id} for path in paths]
    return [
        Question(json.dumps(body).encode(), path.stem.partition("-")[2])
        for path, body in zip(paths, bodies, strict=True)
    ]


def zipf(seed: int) -> Iterator[Any]:
    """Questions without end, each for a model drawn by its popularity."""
    draw, ids = random.Random(seed), [*MODELS]
    questions = {name: asked(name) for name in ids}
    while True:
        [name] = draw.choices(ids, [1 / rank for rank in range(1, len(ids) + 1)])
        yield draw.choice(questions[name])


async def arrive(url: str, seconds: float) -> tuple[Run, Any, Any]:
    """People who come when they come, after each model was asked once, the least popular first."""
    async with predicting(url) as (send, http):
        for name in reversed(MODELS):
            await send(asked(name)[0], 0.0)  # frameworks are imported, and the most popular are there
        before = (await http.get("/stats")).json()
        one = await open_loop(send, zipf(seed=1), poisson_arrivals(RATE, seconds, seed=1), seconds)
        return one, before, (await http.get("/stats")).json()


def lookups(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """How often the model was there, and how long a load took, by the server's counters."""
    hits, misses, loads, seconds = (after[name] - before[name] for name in ("hits", "misses", "loads", "load_seconds"))
    return {
        "hit_rate": hits / (hits + misses) if hits + misses else None,
        "loads": loads,
        "seconds_per_load": seconds / loads if loads else None,
    }


def table(result: Result, *slots: str) -> Sheet:
    """One row a cell."""
    rows = [
        (
            str(cell["slots"]),
            server_name(cell["target"]),
            str(cell["requests"]),
            "-" if cell["hit_rate"] is None else f"{cell['hit_rate']:.0%}",
            str(cell["loads"]),
            ms(cell["seconds_per_load"]),
            *(ms(cell["latency"][name]) for name in ("p50", "p99")),
            errors(cell["errors"]),
        )
        for cell in result["cells"]
        if not slots or str(cell["slots"]) in slots
    ]
    headings = ("slots", "server", "requests", "hit rate", "loads", "a load", "latency p50", "p99", "errors")
    return Sheet(f"Open loop: {RATE} people a second, five models", headings, rows)


SCENARIO = Scenario(
    "zipf", "hit rate and tail with 2, 3 and 5 slots for five models", "five classifiers", 20.0, run, table
)
