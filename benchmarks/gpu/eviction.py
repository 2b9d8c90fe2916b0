"""04 Stage 04 evicts for real: with one slot, a model is gone when the load of the next one begins.

A weak reference to the module must be dead, and on CUDA `memory_reserved` must have fallen since its last pass.
"""

import asyncio
import json
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.stamp import ROOT

from .rows import Row
from .without_web import Stage

stage = Stage("04_lru_models")


def check(device: str) -> Iterator[Row]:
    """Each model loads, answers, and makes room for the next."""
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
        home = stage.residency.Residency(stage.lru.Lru(1), workers, device, stage.trace.Tracer(None))
        asked = [await home.call(metadata, ask, "gpu_check") for metadata in models]
        await home.close(60)
        return asked

    workers = {
        "torchvision": looking(stage.torchvision_worker.TorchVisionWorker),
        "transformers": looking(stage.transformers_worker.TransformersWorker),
    }
    models = [model for model in registered() if model.framework in workers]
    asked = asyncio.run(in_turn([*models, models[0]], workers))
    for metadata, (weights, full), (gone, left) in zip(models, asked[:-1], found[1:], strict=True):
        told = f"{weights:,} bytes of weights; reserved {full:,}, then {left:,}; {'gone' if gone else 'still there'}"
        yield Row("04 eviction", metadata.name, told, gone and (left < full or device != "cuda"))


def registered() -> list[Any]:
    """The models of the registry, read without pydantic, which may be missing."""
    folder = ROOT / "models"
    listed = json.loads((folder / "models.json").read_bytes())["models"]
    return [SimpleNamespace(**{"url": None, **model}, directory=folder / model["name"]) for model in listed]


def reserved(device: str) -> int:
    """Bytes that torch has taken from the GPU."""
    return torch.cuda.memory_reserved() if device == "cuda" else 0
