"""What only a machine with a GPU can show, in one command: `python -m benchmarks.gpu_check`.

Needs torch and what the models need, but none of the web packages: where they are missing, empty ones stand in.
`--cpu-dry-run` rehearses every check without a GPU and writes nothing. A check is a function that yields rows.
"""

import argparse
import asyncio
import importlib
import importlib.util
import json
import platform
import sys
import weakref
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import torch

from .stamp import RESULTS, ROOT, stamp, write_result

WEB = ("fastapi", "fastapi.exceptions", "fastapi.responses", "starlette", "starlette.exceptions", "starlette.types")

parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description="Check what needs a GPU.")
parser.add_argument("--cpu-dry-run", action="store_true", help="rehearse on the CPU; nothing is written")


@dataclass(frozen=True)
class Row:
    """One thing that was looked at."""

    check: str
    subject: str
    found: str
    passed: bool


class StandIn(ModuleType):
    """A package that is not there; whatever is imported from it is an empty class."""

    __path__: Any = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


def stand_in_for_the_web() -> None:
    """Let stage code that says how an error is answered be imported where nobody answers anything."""
    if not importlib.util.find_spec("fastapi"):
        sys.modules.update({name: StandIn(name) for name in WEB})


def eviction(device: str) -> Iterator[Row]:
    """Stage 04 evicts for real: with one slot, a model is gone when the load of the next one begins.

    A weak reference to the module must be dead, and on CUDA `memory_reserved` must have fallen since its last pass.
    """
    stand_in_for_the_web()
    registry, residency, lru, trace, torchvision, transformers = (
        importlib.import_module(f"stages.04_lru_models.{name}")
        for name in ("registry", "residency", "lru", "trace", "torchvision_worker", "transformers_worker")
    )
    found: list[tuple[bool, int]] = []
    last: Any = lambda: None  # noqa: E731  a dead reference

    def looking(kind: Any) -> Any:
        """This worker, which looks around before it loads."""

        def load(self: Any) -> None:
            found.append((last() is None, reserved(device)))
            kind.load(self)

        return type(kind.__name__, (kind,), {"load": load})

    def ask(worker: Any) -> tuple[int, int]:
        """After one pass: bytes of weights, and reserved."""
        nonlocal last
        [path, *_] = sorted((ROOT / "models" / "samples").glob(f"{worker.metadata.name}-*.json"))
        [prediction] = worker.predict([worker.prepare(json.loads(path.read_bytes())["input_data"])])
        if prediction.label != (expected := path.stem.partition("-")[2]):
            raise RuntimeError(f"{worker.metadata.name} says {prediction.label}, not {expected}")
        last = weakref.ref(worker.model)
        return worker.size(), reserved(device)

    async def in_turn(models: list[Any], workers: dict[str, Any]) -> list[tuple[int, int]]:
        home = residency.Residency(lru.Lru(1), workers, device, trace.Tracer(None))
        asked = [await home.call(metadata, ask, "gpu_check") for metadata in models]
        await home.close(60)
        return asked

    workers = {
        "torchvision": looking(torchvision.TorchVisionWorker),
        "transformers": looking(transformers.TransformersWorker),
    }
    models = [one for one in registry.read_registry(ROOT / "models").values() if one.framework in workers]
    asked = asyncio.run(in_turn([*models, models[0]], workers))
    for metadata, (weights, full), (gone, left) in zip(models, asked[:-1], found[1:], strict=True):
        told = f"{weights:,} bytes of weights; reserved {full:,}, then {left:,}; {'gone' if gone else 'still there'}"
        yield Row("04 eviction", metadata.name, told, gone and (left < full or device != "cuda"))


def reserved(device: str) -> int:
    """Bytes that torch has taken from the GPU."""
    return torch.cuda.memory_reserved() if device == "cuda" else 0


CHECKS = (eviction,)
"""the next stages add theirs"""


def main() -> int:
    """Run all checks, and print the table last; 1 if one has failed, 2 if there is no GPU."""
    dry = parser.parse_args().cpu_dry_run
    if not dry and not torch.cuda.is_available():
        print("There is no CUDA device here; --cpu-dry-run rehearses the checks without one.", file=sys.stderr)
        return 2
    device = "cpu" if dry else "cuda"
    rows = [row for check in CHECKS for row in check(device)]
    if not dry:
        result = {"stamp": stamp("the shipped models", "python -m benchmarks.gpu_check"), "gpu": gpu()}
        print("written:", write_result("gpu", {**result, "checks": [asdict(row) for row in rows]}, RESULTS))
    print(f"\n{'rehearsal on the CPU' if dry else gpu()['name']}, torch {torch.__version__}, {platform.machine()}")
    for row in rows:
        print(f"{'pass' if row.passed else 'FAIL'}  {row.check:12}  {row.subject:10}  {row.found}")
    return 0 if all(row.passed for row in rows) else 1


def gpu() -> dict[str, Any]:
    """What the GPU is."""
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    return {"name": name, "capability": ".".join(map(str, capability)), "cuda": torch.version.cuda}


if __name__ == "__main__":
    sys.exit(main())
