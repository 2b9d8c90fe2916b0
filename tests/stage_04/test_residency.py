"""The driver with scripted workers: what is loaded, called and freed when, with gates instead of sleeps."""

import asyncio
from typing import Any

import pytest

from tests.serving import Stage
from tests.stage_04.scripted import Script, ask, make_residency, metadata, reached

stage = Stage("04_lru_models")
REFERENCE = stage.parts.Parts()


async def settled(residency: Any) -> None:
    await residency.close(30)


def test_eight_concurrent_misses_load_once() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script)
        gate = script.hold("load a")
        calls = [asyncio.ensure_future(ask(residency, "a")) for _ in range(8)]
        await reached(gate)
        gate.open.set()
        assert await asyncio.gather(*calls) == ["a 1"] * 8
        assert residency.counts["loads"] == 1
        await settled(residency)

    asyncio.run(main())
    assert script.events.count("load a") == 1


def test_a_load_stalls_nobody_elses_hit(parts: Any, patience: float) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(parts, script)
        await ask(residency, "a")
        gate = script.hold("load b")
        loading = asyncio.ensure_future(ask(residency, "b"))
        await reached(gate)
        try:
            assert await asyncio.wait_for(ask(residency, "a"), patience) == "a 1"
        except TimeoutError:
            pytest.fail("a hit waited for another model's load")
        finally:
            gate.open.set()
        assert await loading == "b 1"
        await settled(residency)

    asyncio.run(main())


def test_a_cancelled_waiter_does_not_cancel_the_load() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script)
        gate = script.hold("load a")
        first, second = (asyncio.ensure_future(ask(residency, "a")) for _ in range(2))
        await reached(gate)
        first.cancel()
        gate.open.set()
        assert await second == "a 1"
        await settled(residency)

    asyncio.run(main())


@pytest.mark.parametrize("hangs_up", [False, True])
def test_eviction_waits_for_calls_in_flight(hangs_up: bool) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script, slots=1)
        gate = script.hold("predict a")
        running = asyncio.ensure_future(ask(residency, "a"))
        await reached(gate)
        if hangs_up:
            running.cancel()
        following = asyncio.ensure_future(ask(residency, "b"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(following), 0.05)
        assert "free a" not in script.events and "load b" not in script.events
        gate.open.set()
        assert await following == "b 1"
        if not hangs_up:
            assert await running == "a 1"
        assert script.events.index("free a") < script.events.index("load b")
        await settled(residency)

    asyncio.run(main())
    assert script.most == 1


def test_an_evicted_worker_is_never_asked_again(parts: Any) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(parts, script)
        answers = []
        for name in "abca":
            try:
                answers.append(await ask(residency, name))
            except (RuntimeError, stage.errors.ServingError):
                pytest.fail("an evicted worker was asked as if it were still there")
        assert answers == ["a 1", "b 1", "c 1", "a 2"], "an evicted worker was asked as if it were still there"
        await settled(residency)

    asyncio.run(main())
    assert script.asked_when_freed == []


@pytest.mark.parametrize("reason", ["framework", "check"])
def test_what_cannot_load_is_found_out_before_anything_is_evicted(reason: str) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script)
        await ask(residency, "a")
        await ask(residency, "b")
        bad = metadata("odd", "abacus") if reason == "framework" else metadata("unusable")
        with pytest.raises(stage.errors.LoadFailed, match=r"odd .*'abacus'|unusable .*scripted trouble"):
            await residency.call(bad, lambda worker: worker.predict([0]), "a request")
        assert await ask(residency, "a") == "a 1"
        assert await ask(residency, "b") == "b 1"
        await settled(residency)

    asyncio.run(main())


def test_a_model_that_cannot_load_evicts_nobody(parts: Any) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(parts, script)
        await ask(residency, "a")
        await ask(residency, "b")
        with pytest.raises(stage.errors.LoadFailed, match="nowhere"):
            await residency.call(metadata("nowhere", "onnx"), lambda worker: worker.predict([0]), "a request")
        answers = [await ask(residency, "a"), await ask(residency, "b")]
        await settled(residency)
        assert answers == ["a 1", "b 1"], "a model that cannot load pushed out one that could"

    asyncio.run(main())


def test_never_more_models_in_memory_than_slots(parts: Any) -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(parts, script)
        for name in "abcab":
            await ask(residency, name)
        assert script.most <= 2, f"more models in memory than there are slots: {script.most} in 2"
        await asyncio.gather(*(ask(residency, name) for name in "abcdefabcdef"))
        await settled(residency)

    asyncio.run(main())
    assert script.most == 2
    assert script.in_memory.total() == 0


def test_a_failed_load_leaves_nothing_and_the_evicted_model_loads_again() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script, slots=1)
        await ask(residency, "a")
        gate = script.hold("load broken")
        calls = [asyncio.ensure_future(ask(residency, "broken")) for _ in range(3)]
        await reached(gate)
        gate.open.set()
        for call in calls:
            with pytest.raises(stage.errors.LoadFailed, match="broken cannot be loaded: no room for the weights"):
                await call
        assert not residency.policy.entries
        assert residency.counts["failed_loads"] == 1
        assert await ask(residency, "a") == "a 2"
        await settled(residency)

    asyncio.run(main())
    assert script.most == 1


def test_a_worker_whose_server_is_gone_is_replaced() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script)
        with pytest.raises(stage.errors.WorkerLost):
            await ask(residency, "a", "lost")
        assert await ask(residency, "a") == "a 2"
        await settled(residency)

    asyncio.run(main())
    assert script.most == 1


def test_an_error_in_a_call_leaves_the_model_where_it_is() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script)
        with pytest.raises(stage.errors.WorkerFailed, match="scripted trouble"):
            await ask(residency, "a", "raise")
        assert await ask(residency, "a") == "a 1"
        await settled(residency)

    asyncio.run(main())


def test_forty_ids_on_four_checkpoints_in_two_slots() -> None:
    script = Script()
    models = [metadata(f"m{number % 4}", model_id=f"id {number}") for number in range(40)]

    async def main() -> None:
        residency = make_residency(REFERENCE, script)
        order = [models[(7 * step) % 40] for step in range(120)]
        calls = [residency.call(model, lambda worker: worker.predict([0]), "a request") for model in order]
        for model, [prediction] in zip(order, await asyncio.gather(*calls), strict=True):
            assert prediction.label.startswith(f"{model.name} ")
        assert residency.counts["hits"] + residency.counts["misses"] == 120
        await settled(residency)

    asyncio.run(main())
    assert script.most == 2
    assert script.in_memory.total() == 0
    assert script.asked_when_freed == []


def test_closing_frees_every_model() -> None:
    script = Script()

    async def main() -> None:
        residency = make_residency(REFERENCE, script)
        await asyncio.gather(ask(residency, "a"), ask(residency, "b"))
        await residency.close(30)
        with pytest.raises(stage.errors.EngineDead):
            await ask(residency, "a")

    asyncio.run(main())
    assert script.in_memory.total() == 0
