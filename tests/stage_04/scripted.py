"""Stage 04's scripted workers, and how its tests ask them."""

from functools import partial
from typing import Any

from tests import scripted_models
from tests.scripted_models import SECONDS, reached
from tests.serving import Stage

__all__ = ["SECONDS", "Script", "ask", "make_residency", "metadata", "reached", "shipped"]

stage = Stage("04_lru_models")
metadata = partial(scripted_models.metadata, stage)
shipped = partial(scripted_models.shipped, stage)


class Script(scripted_models.Script):
    stage = stage


def make_residency(parts: Any, script: Script, slots: int = 2) -> Any:
    workers = {**parts.workers, "scripted": script.worker}
    return parts.residency(parts.policy(slots), workers, "cpu", stage.trace.Tracer())


async def ask(residency: Any, name: str, item: Any = "hello") -> str:
    """The label with which a scripted model answers: its name and how often it has been loaded."""
    [prediction] = await residency.call(metadata(name), lambda worker: worker.predict([item]), "a request")
    return prediction.label
