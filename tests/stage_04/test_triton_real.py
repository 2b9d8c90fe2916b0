"""The Triton worker against a real Triton server, fetched once into `models/.triton`: `make test-triton`."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from flo import triton
from tests.serving import Stage
from tests.stage_04.scripted import Script, ask, make_residency, shipped

stage = Stage("04_lru_models")
MODELS = Path(__file__).resolve().parents[2] / "models"
pytestmark = [pytest.mark.triton, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = triton.free_port()
    with triton.running_triton(port=port):
        yield f"http://127.0.0.1:{port}"


def wine(url: str) -> Any:
    return shipped("wine", "triton", url=url)


def state(url: str) -> str:
    [model] = httpx.post(f"{url}/v2/repository/index", json={}).json()
    return model.get("state", "")


def held_out() -> tuple[Any, Any]:
    data = np.load(MODELS / "triton" / "wine" / "held_out.npz")
    return data["inputs"], data["labels"]


def test_load_infer_unload(url: str) -> None:
    worker = stage.triton_worker.TritonWorker(wine(url), "cpu")
    worker.check()
    worker.load()
    assert state(url) == "READY"
    inputs, labels = held_out()
    rows = [worker.prepare({"features": [float(value) for value in row]}) for row in inputs[:30]]
    found = worker.predict(rows)
    right = [prediction.label == f"class_{label}" for prediction, label in zip(found, labels[:30], strict=True)]
    assert np.mean(right) >= 0.9
    with pytest.raises(stage.errors.Refused, match=r"features \[13\]"):
        worker.prepare({"measurements": [1.0] * 13})
    worker.free()
    assert state(url) == "UNAVAILABLE"


def test_what_triton_does_not_have_is_found_out_before_loading(url: str) -> None:
    worker = stage.triton_worker.TritonWorker(shipped("beer", "triton", url=url), "cpu")
    with pytest.raises(stage.errors.LoadFailed, match="beer"):
        worker.check()
    with pytest.raises(stage.errors.LoadFailed, match="beer"):
        worker.load()


def test_it_takes_its_turn_in_the_slots(url: str) -> None:
    body = json.loads((MODELS / "samples" / "wine-class_1.json").read_text())
    script = Script()

    async def main() -> None:
        residency = make_residency(stage.parts.Parts(), script, slots=1)
        for _ in range(2):
            work = lambda worker: worker.predict([worker.prepare(body["input_data"])])  # noqa: E731
            [prediction] = await residency.call(wine(url), work, "a request")
            assert prediction.label == "class_1"
            await ask(residency, "a")
            assert state(url) == "UNAVAILABLE"
        await residency.close(30)

    asyncio.run(main())


def test_a_server_killed_in_the_middle_is_a_502_and_the_worker_is_discarded() -> None:
    port, script = triton.free_port(), Script()

    async def main() -> None:
        residency = make_residency(stage.parts.Parts(), script)
        with triton.running_triton(port=port) as process:
            model = wine(f"http://127.0.0.1:{port}")
            asked = threading.Event()

            def infer_until_killed(worker: Any) -> Any:
                row = worker.prepare({"features": [1.0] * 13})
                while True:
                    worker.predict([row] * 32)
                    asked.set()

            call = asyncio.ensure_future(residency.call(model, infer_until_killed, "a request"))
            assert await asyncio.to_thread(asked.wait, 60)
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(stage.errors.WorkerLost) as caught:
                await call
            assert caught.value.status == 502
        with pytest.raises(stage.errors.WorkerLost):
            await residency.call(model, lambda worker: worker.size(), "a request")
        await residency.close(30)
        assert not residency.policy.entries

    asyncio.run(main())
