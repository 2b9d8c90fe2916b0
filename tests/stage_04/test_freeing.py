"""Freeing is real: a weak reference to the module itself sees it gone before the next load starts."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.serving import Stage
from tests.stage_04.scripted import Script, ask, make_residency, shipped

stage = Stage("04_lru_models")
Rows = list[Any]


@pytest.fixture(autouse=True)
def no_collection_by_chance() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_an_evicted_module_is_gone_before_the_next_load(parts: Any) -> None:
    """The module has a forward hook that refers to it: a cycle, as real ones have."""
    script, seen = Script(), []
    modules: Any = weakref.WeakSet()

    class Watched(parts.workers["torchvision"]):
        def load(self) -> None:
            super().load()
            module = self.model
            module.register_forward_hook(lambda *_: module.zero_grad())
            modules.add(module)

    class Newcomer(script.worker):
        def load(self) -> None:
            seen.append(len(modules))
            super().load()

    async def main() -> None:
        residency = make_residency(parts, script, slots=1)
        residency.workers = {**residency.workers, "torchvision": Watched, "scripted": Newcomer}
        model = shipped("digits", "torchvision")
        assert await residency.call(model, lambda worker: worker.size(), "a request") > 1_000_000
        await ask(residency, "a")
        await residency.close(30)

    asyncio.run(main())
    assert seen == [0], "the evicted model was still in memory when the next load began"


def test_an_error_that_somebody_keeps_does_not_keep_the_model() -> None:
    """A traceback holds frames, and a frame of `forward` holds the module."""
    script, errors = Script(), []
    module: Any = None

    def fail(worker: Any) -> Rows:
        nonlocal module
        module = weakref.ref(worker.model)
        return worker.predict([torch.zeros(1, 2, 3)])  # one channel where the model wants three

    async def main() -> None:
        residency = make_residency(stage.parts.Parts(), script, slots=1)
        try:
            await residency.call(shipped("digits", "torchvision"), fail, "a request")
        except stage.errors.WorkerFailed as exc:
            errors.append(exc)
        await ask(residency, "a")
        assert module() is None
        await residency.close(30)

    asyncio.run(main())
    assert len(errors) == 1
