"""What all workers have in common: a model that is checked, loaded, asked, and freed.

A worker knows one framework and nothing of slots or other models. Building one costs nothing and loads nothing, so
attributes can be set in any order. Everything that takes time runs on the worker's own thread, one thing after another.
"""

import gc
import json
import math
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from .errors import LoadFailed, Refused
from .registry import Metadata


@dataclass(frozen=True)
class Prediction:
    """The likeliest label of one input, and its probability."""

    label: str
    score: float


class Worker(ABC):
    """One model of one framework. `model` is what holds the memory."""

    def __init__(self, metadata: Metadata, device: str) -> None:
        self.metadata = metadata
        self.device = device
        self.model: Any = None
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=metadata.name)

    @abstractmethod
    def check(self) -> None:
        """Find out, at little cost, what would make `load` fail. Raises `LoadFailed`, or what the framework raises."""

    @abstractmethod
    def load(self) -> None:
        """Take the memory. Raises `LoadFailed`, or what the framework raises."""

    @abstractmethod
    def prepare(self, item: Any) -> Any:
        """One input as the model wants it. Raises `Refused` with what was expected."""

    @abstractmethod
    def predict(self, rows: list[Any]) -> list[Prediction]:
        """One pass for prepared inputs."""

    def free(self) -> None:
        """Give the memory back before returning: drop the model, collect it, and empty the allocator's cache."""
        self.model = None
        gc.collect()  # modules hold each other in cycles, which would wait for some later collection
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()

    def size(self) -> int:
        """Bytes of memory on this machine."""
        return sum(tensor.nbytes for tensor in (*self.model.parameters(), *self.model.buffers()))

    def failed(self, why: object) -> LoadFailed:
        """The error that says which model cannot be loaded, and why."""
        lines = str(why).strip().splitlines() or [repr(why)]
        return LoadFailed(f"{self.metadata.name} cannot be loaded: {lines[0]}")

    def config(self, *files: str) -> dict[str, Any]:
        """`config.json` of the model's directory, which must hold these files too. Raises `LoadFailed`."""
        for file in ("config.json", *files):
            if not (self.metadata.directory / file).is_file():
                raise self.failed(f"there is no {file} in {self.metadata.directory}")
        try:
            config = json.loads((self.metadata.directory / "config.json").read_bytes())
        except ValueError as exc:
            raise self.failed(f"config.json: {exc}") from exc
        if not isinstance(config, dict):
            raise self.failed("config.json: not an object")
        return config


def best(labels: list[str], scores: list[list[float]]) -> list[Prediction]:
    """For each row of probabilities its likeliest label."""
    places = [max(range(len(row)), key=row.__getitem__) for row in scores]
    return [Prediction(labels[place], row[place]) for place, row in zip(places, scores, strict=True)]


def numbers(item: Any, count: int) -> list[float]:
    """A list of so many finite numbers. Raises `Refused`."""
    if not isinstance(item, list) or any(
        isinstance(value, bool) or not isinstance(value, int | float) for value in item
    ):
        raise Refused(f"must be a list of {count} numbers")
    if len(item) != count:
        raise Refused(f"must be a list of {count} numbers, not of {len(item)}")
    try:
        if all(math.isfinite(float(value)) for value in item):
            return [float(value) for value in item]
    except OverflowError:
        pass
    raise Refused("must be finite numbers")
