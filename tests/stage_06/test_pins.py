"""Who pins what, from when to when: over HTTP, with scripted workers and gates instead of sleeps."""

import asyncio
import concurrent.futures
import json
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serving import Stage, serving
from tests.stage_06.asking import ends_well, events, predict, send_and_hang_up, text, wait_for
from tests.stage_06.scripted import SECONDS, Script, make_residency, metadata, reached, shipped

stage = Stage("06_pinned_streams")
REFERENCE = stage.parts.Parts()
Scripted = Callable[..., Any]


def states(client: httpx.Client) -> dict[str, str]:
    return {model["id"]: model["state"] for model in client.get("/models").json()["loaded"]}


def test_a_model_that_streams_is_not_the_victim(parts: Any, scripted: Scripted, script: Script) -> None:
    with ThreadPoolExecutor() as pool, scripted(parts) as client:
        gate = script.hold("step s")
        streaming = pool.submit(events, client, "s", "the older one")
        assert gate.reached.wait(SECONDS)
        assert predict(client, "a").status_code == 200
        newcomer = pool.submit(predict, client, "b")
        while "b" not in states(client) and not newcomer.done():
            pass
        gate.open.set()
        said = streaming.result(SECONDS)
        assert ends_well(said) and text(said) == "the older one", "a model was evicted in mid-stream"
        assert newcomer.result(SECONDS).json()["predictions"][0]["label"] == "b 1"
        assert states(client).keys() == {"s", "b"}
    assert script.asked_when_freed == []


def test_a_model_that_predicts_is_not_the_victim(
    parts: Any, scripted: Scripted, script: Script, patience: float
) -> None:
    with ThreadPoolExecutor() as pool, scripted(parts) as client:
        gate = script.hold("predict a")
        predicting = pool.submit(predict, client, "a")
        assert gate.reached.wait(SECONDS)
        assert predict(client, "b").status_code == 200
        newcomer = pool.submit(predict, client, "c")
        while "c" not in states(client) and not newcomer.done():
            pass
        gate.open.set()
        cut = "a model was evicted in mid-prediction"
        assert concurrent.futures.wait([predicting], patience).done, cut
        assert predicting.result().status_code == 200, cut
        assert newcomer.result(SECONDS).status_code == 200
        assert states(client).keys() == {"a", "c"}


def test_a_third_model_is_refused_and_both_streams_finish(parts: Any, scripted: Scripted, script: Script) -> None:
    with ThreadPoolExecutor() as pool, scripted(parts) as client:
        gates = [script.hold("step s"), script.hold("step t")]
        streams = [pool.submit(events, client, name, f"all of {name}") for name in "st"]
        assert all(gate.reached.wait(SECONDS) for gate in gates)
        newcomer = pool.submit(predict, client, "a", timeout=SECONDS)
        while "a" not in states(client) and not newcomer.done():
            pass
        for gate in gates:
            gate.open.set()
        said = [stream.result(SECONDS) for stream in streams]
        cut = "a stream was cut short to make room"
        assert all(map(ends_well, said)), cut
        assert [text(each) for each in said] == ["all of s", "all of t"], cut
        refused = newcomer.result(SECONDS)
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
        assert "2 models" in refused.json()["error"]["message"]
        assert predict(client, "a").status_code == 200
        assert wait_for(client, pins=0)["refused_busy"] == 1


def test_nobody_waits_for_a_stream_to_end(parts: Any, scripted: Scripted, script: Script, patience: float) -> None:
    with ThreadPoolExecutor() as pool, scripted(parts, slots=1) as client:
        gate = script.hold("step s")
        streaming = pool.submit(events, client, "s", "a minute long")
        assert gate.reached.wait(SECONDS)
        try:
            assert predict(client, "a", timeout=patience).status_code == 503
        except httpx.ReadTimeout:
            pytest.fail("had to wait for somebody else's stream to end")
        finally:
            gate.open.set()
        assert text(streaming.result(SECONDS)) == "a minute long"


def test_retry_after_is_when_the_streams_of_some_model_have_ended(scripted: Scripted, script: Script) -> None:
    """By tokens to go, and the length of the steps so far; one second as long as there was none."""
    with ThreadPoolExecutor() as pool, scripted(REFERENCE) as client:
        gates = [script.hold("step s"), script.hold("step t")]
        pool.submit(events, client, "s", "x" * 90, max_new_tokens=90)
        pool.submit(events, client, "t", "x" * 40, max_new_tokens=40)
        pool.submit(events, client, "t", "x" * 70, max_new_tokens=70)
        assert all(gate.reached.wait(SECONDS) for gate in gates)
        wait_for(client, pins=3, queued=0)
        assert predict(client, "a").headers["Retry-After"] == "70"


def test_hanging_up_mid_stream_releases_the_pin(
    parts: Any, scripted: Scripted, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.engine, "CLOSE_SECONDS", 0.1)  # a pin that is left would hold up the end
    with scripted(parts, slots=1) as client:
        gate = script.hold("step s")
        send_and_hang_up(client, "s", "x" * 500, until=lambda: gate.reached.wait(SECONDS))
        stats = client.get("/stats").json()
        while not stats["requests"]["hung_up"]:
            stats = client.get("/stats").json()
        assert stats["pins"] == 0, "a hang-up in mid-stream left a pin behind"
        gate.open.set()
        assert predict(client, "a").status_code == 200
        assert wait_for(client, pins=0)["requests"] == {"completed": 1, "refused": 0, "failed": 0, "hung_up": 1}
    assert script.events.count("step s") <= 2


def test_hanging_up_before_the_first_byte_releases_the_pin(parts: Any) -> None:
    """Whoever watches the connection aborts; the generator of the pieces has never been started."""
    script = Script()

    async def main() -> None:
        residency = make_residency(parts, script, slots=1)
        engine = make_engine(parts, residency)
        sampling = stage.sequence.Sampling(500, 0.0, 0)
        gate = script.hold("step s")
        sequence = await engine.submit("s", "x" * 500, sampling)
        engine.pieces(sequence)
        await reached(gate)
        engine.abort(sequence)
        pins = engine.snapshot()["pins"]
        gate.open.set()
        assert pins == 0, "a hang-up before the first byte left a pin behind"
        assert [p.label for p in await engine.predict("a", "hello")] == ["a 1"]
        engine.abort(sequence)
        await engine.stop()
        assert engine.snapshot()["requests"] == {"completed": 1, "refused": 0, "failed": 0, "hung_up": 1}

    asyncio.run(main())


def make_engine(parts: Any, residency: Any) -> Any:
    registry = {name: metadata(name, "scripted-stream" if name in "stu" else "scripted") for name in "abcstu"}
    return parts.engine(registry, residency, stage.stats.Stats(0.0), 128, SECONDS, stage.trace.Tracer(), parts.mailbox)


def test_a_model_stays_from_its_load_to_the_start_of_its_stream(
    parts: Any, scripted: Scripted, script: Script, patience: float
) -> None:
    with ThreadPoolExecutor() as pool, scripted(parts, slots=1) as client:
        gate = script.hold("prepare s")
        streaming = pool.submit(events, client, "s", "for this it was loaded")
        assert gate.reached.wait(SECONDS)
        newcomer = predict(client, "a")
        gate.open.set()
        lost = "evicted between its load and the start of its stream"
        try:
            said = streaming.result(patience)
        except Exception as exc:
            pytest.fail(f"{lost}: {exc!r}")
        assert ends_well(said) and text(said) == "for this it was loaded", lost
        assert newcomer.status_code == 503


@pytest.mark.parametrize("when", ["load", "prepare"])
def test_hanging_up_during_admission_releases_the_pin(when: str, scripted: Scripted, script: Script) -> None:
    with scripted(REFERENCE, slots=1) as client:
        gate = script.hold(f"{when} s")
        send_and_hang_up(client, "s", "gone", until=lambda: gate.reached.wait(SECONDS))
        assert wait_for(client, pins=0, queued=0)["requests"]["hung_up"] == 1
        gate.open.set()
        while predict(client, "a").status_code != 200:  # as long as it loads, it is in nobody's way but this one's
            pass
        assert states(client) == {"a": "ready"}
    assert "step s" not in script.events


def test_hanging_up_while_waiting_for_a_place_releases_the_pin(scripted: Scripted, script: Script) -> None:
    with ThreadPoolExecutor() as pool, scripted(REFERENCE, knobs={"max_batch": 1}) as client:
        gate = script.hold("step s")
        held = pool.submit(events, client, "s", "first")
        assert gate.reached.wait(SECONDS)
        send_and_hang_up(client, "s", "gone", until=lambda: wait_for(client, streams_waiting=1))
        wait_for(client, streams_waiting=0, pins=1)
        gate.open.set()
        assert text(held.result(SECONDS)) == "first"
        assert wait_for(client, pins=0)["requests"] == {"completed": 1, "refused": 0, "failed": 0, "hung_up": 1}


def test_a_stream_that_fails_releases_its_pin_and_harms_no_other(scripted: Scripted, script: Script) -> None:
    with ThreadPoolExecutor() as pool, scripted(REFERENCE, slots=1) as client:
        gate = script.hold("step s")
        good = pool.submit(events, client, "s", "good")
        assert gate.reached.wait(SECONDS)
        bad = pool.submit(events, client, "s", "raise")
        wait_for(client, streams_waiting=1)
        gate.open.set()
        assert text(good.result(SECONDS)) == "good"
        [trouble] = bad.result(SECONDS)
        assert trouble.event == "error" and trouble.json()["message"] == "scripted trouble"
        stats = wait_for(client, pins=0, streams_running=0)
        assert stats["requests"] == {"completed": 1, "refused": 0, "failed": 1, "hung_up": 0}


def test_a_load_that_fails_leaves_no_pin_and_no_entry(scripted: Scripted) -> None:
    with scripted(REFERENCE) as client:
        body = {"model_id": "broken-stream", "prompt": "x"}
        failed = client.post("/generate_stream", json=body)
        assert failed.status_code == 500
        assert "broken-stream cannot be loaded: no room" in failed.json()["error"]["message"]
        assert states(client) == {}
        assert wait_for(client, pins=0)["requests"]["failed"] == 1


def test_places_and_waiting_streams_are_bounded(scripted: Scripted, script: Script) -> None:
    with ThreadPoolExecutor() as pool, scripted(REFERENCE, knobs={"max_batch": 1, "max_queue": 1}) as client:
        gate = script.hold("step s")
        streams = [pool.submit(events, client, "s", "stream 0")]
        assert gate.reached.wait(SECONDS)
        streams.append(pool.submit(events, client, "s", "stream 1"))
        wait_for(client, pins=2, streams_running=1, streams_waiting=1)
        refused = client.post("/generate_stream", json={"model_id": "s", "prompt": "one more"})
        assert refused.status_code == 503
        assert "1 of 1" in refused.json()["error"]["message"]
        assert int(refused.headers["Retry-After"]) >= 1
        gate.open.set()
        assert [text(stream.result(SECONDS)) for stream in streams] == ["stream 0", "stream 1"]
        assert wait_for(client, pins=0, streams_running=0)["streams_waiting"] == 0


def test_closing_mid_stream_is_an_error_event_and_frees_everything(
    script: Script, scripted: Scripted, tmp_path: Any
) -> None:
    with scripted(REFERENCE):
        pass  # writes the registry
    workers = {**REFERENCE.workers, "scripted": script.worker, "scripted-stream": script.streaming}
    parts = stage.parts.Parts(workers=workers)
    app = stage.server.create_app(stage.settings.Settings(models=tmp_path), parts)
    gate = script.hold("step s")
    with ThreadPoolExecutor() as pool:
        with serving(app) as client:
            streaming = pool.submit(events, client, "s", "never to end")
            assert gate.reached.wait(SECONDS)
            threading.Thread(target=app.state.engine.close).start()
            said = streaming.result(SECONDS)
            assert json.loads(client.get("/stats").text)["pins"] == 0
            assert client.get("/health").status_code == 503
            refused = client.post("/generate_stream", json={"model_id": "s", "prompt": "too late"})
            assert refused.status_code == 503
            gate.open.set()
        assert said[-1].event == "error" and "closing" in said[-1].json()["message"]
    assert script.in_memory.total() == 0


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_an_evicted_model_and_its_cache_are_gone_before_the_next_load() -> None:
    """Whoever has the answer still holds the stream, and neither may hold the module or the keys and values."""
    script = Script()
    tensors: Any = weakref.WeakSet()
    seen: list[int] = []

    class Watched(REFERENCE.workers["causal-lm"]):
        def free(self) -> None:
            tensors.update([self.model, self.cache])
            super().free()

    class Newcomer(script.worker):
        def load(self) -> None:
            seen.append(len(tensors))
            super().load()

    async def main() -> None:
        residency = make_residency(REFERENCE, script, slots=1)
        residency.workers = {**residency.workers, "causal-lm": Watched, "scripted": Newcomer}
        engine = make_engine(REFERENCE, residency)
        engine.registry["tiny"] = shipped("tiny-opt", "causal-lm")
        sequence = await engine.submit("tiny", "Count from 3 to 9:", stage.sequence.Sampling(20, 0.0, 0))
        assert "".join([piece async for piece, _ in engine.pieces(sequence)]) == " 3 4 5 6 7 8 9"
        await engine.predict("a", "hello")
        await engine.stop()
        assert sequence.output_ids

    asyncio.run(main())
    assert seen == [0]
