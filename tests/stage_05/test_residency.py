"""Queues and residency together: what eviction does to what is parked, and what a reloaded model gets."""

import asyncio
import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Stage
from tests.stage_05.scripted import FOREVER, Script, ask, make_residency, metadata, shipped

stage = Stage("05_dynamic_batcher")
MODELS = Path(__file__).resolve().parents[2] / "models"


def test_evicting_a_model_flushes_what_is_parked_on_it(parts: Any, patience: float) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(parts, script, slots=1, max_batch=3, max_delay_ms=FOREVER)
        parked = [asyncio.ensure_future(ask(residency, "a")) for _ in range(2)]
        while len(parked_on(residency, "a")) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        newcomers = [asyncio.ensure_future(ask(residency, "b")) for _ in range(3)]
        _, pending = await asyncio.wait([*parked, *newcomers], timeout=patience)
        for call in pending:
            call.cancel()
        lost = "what was parked on an evicted model was thrown away"
        assert not pending, lost
        assert [call.exception() or call.result() for call in parked] == ["a 1"] * 2, lost
        assert [call.result() for call in newcomers] == ["b 1"] * 3
        assert script.events.index("predict a") < script.events.index("free a") < script.events.index("load b")
        await residency.close(30)

    asyncio.run(main())
    assert script.most == 1


def parked_on(residency: Any, model_id: str) -> list[Any]:
    entry = residency.policy.entries.get(model_id)
    return entry.worker.batcher.waiting if entry and entry.worker else []


def test_a_reloaded_model_gets_a_fresh_queue(parts: Any, patience: float) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(parts, script, slots=1)
        answers = []
        for name in "aba":
            try:
                answers.append(await asyncio.wait_for(ask(residency, name), patience))
            except (TimeoutError, stage.errors.ServingError):
                pytest.fail("the reloaded model was asked through its old queue")
        assert answers == ["a 1", "b 1", "a 2"]
        await residency.close(30)

    asyncio.run(main())
    assert script.asked_when_freed == []


def test_an_evicted_module_is_gone_before_the_next_load() -> None:
    """Queue, task and futures hold the worker, and none of them may hold its model."""
    script, parts = Script(), stage.parts.Parts()
    item = json.loads((MODELS / "samples" / "digits-7.json").read_text())["input_data"]
    modules: Any = weakref.WeakSet()
    seen: list[int] = []

    class Watched(parts.workers["torchvision"]):
        def load(self) -> None:
            super().load()
            modules.add(self.model)

    class Newcomer(script.worker):
        def load(self) -> None:
            seen.append(len(modules))
            super().load()

    async def main() -> None:
        residency = make_residency(parts, script, slots=1)
        residency.workers = {**residency.workers, "torchvision": Watched, "scripted": Newcomer}

        async def work(queue: Any) -> Any:
            return await queue.answers([queue.worker.prepare(item)] * 2, "r")

        answers = await residency.call(shipped("digits", "torchvision"), work, "r")
        assert [answer.label for answer in answers] == ["7", "7"]
        assert len(modules) == 1
        await ask(residency, "a")
        await residency.close(30)

    asyncio.run(main())
    assert seen == [0]


def test_a_storm_over_more_models_than_slots_loses_nothing() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(stage.parts.Parts(), script, max_batch=8, max_delay_ms=1.0)
        order = [f"m{(7 * step) % 5}" for step in range(300)]
        answers = await asyncio.gather(*(ask(residency, name) for name in order))
        assert [answer.split()[0] for answer in answers] == order
        await residency.close(30)

    asyncio.run(main())
    assert script.most == 2
    assert script.in_memory.total() == 0
    assert script.asked_when_freed == []


def test_an_error_reaches_its_caller_and_no_other() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(stage.parts.Parts(), script, max_batch=3, max_delay_ms=FOREVER)
        calls = [asyncio.ensure_future(ask(residency, "a", item)) for item in ("x", "raise", "y")]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[1], stage.errors.WorkerFailed)
        assert [found[0], found[2]] == ["a 1", "a 1"]
        await residency.close(30)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["digits", "shapes", "intents"])
def test_the_counters_agree_with_forward_hooks(name: str) -> None:
    kind = "transformers" if name == "intents" else "torchvision"
    items = [json.loads(path.read_text())["input_data"] for path in sorted((MODELS / "samples").glob(f"{name}-*.json"))]
    rows: list[int] = []

    async def main() -> None:
        residency = make_residency(stage.parts.Parts(), Script(), max_batch=len(items), max_delay_ms=FOREVER)

        async def submit(queue: Any, item: Any) -> Any:
            return await queue.submit(queue.worker.prepare(item), "r")

        async def watch(queue: Any) -> None:
            def hook(_: Any, args: Any, kwargs: Any, output: Any) -> None:
                rows.append(len(output.logits if hasattr(output, "logits") else output))

            queue.worker.model.register_forward_hook(hook, with_kwargs=True)

        model = shipped(name, kind)
        await residency.call(model, watch, "r")
        calls = [residency.call(model, lambda queue, item=item: submit(queue, item), "r") for item in items]
        answers = await asyncio.gather(*calls)
        assert rows == [len(items)]
        alone = [await residency.call(model, lambda queue, item=item: one(queue, item), "r") for item in items]
        for together, single in zip(answers, alone, strict=True):
            assert together.label == single.label
            assert together.score == pytest.approx(single.score, abs=1e-5)
        await residency.close(30)

    async def one(queue: Any, item: Any) -> Any:
        [prediction] = await asyncio.to_thread(queue.worker.predict, [queue.worker.prepare(item)])
        return prediction

    asyncio.run(main())


def test_metadata_carries_the_knobs() -> None:
    model = metadata("a", max_batch=3, max_delay_ms=0.5, max_queue=7)
    assert (model.max_batch, model.max_delay_ms, model.max_queue) == (3, 0.5, 7)
