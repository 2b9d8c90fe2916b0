"""Routes and engine over HTTP, with a worker that follows a script."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serving import Gate, Stage

stage = Stage("01_single_request")


def ask(client: httpx.Client, prompt: str) -> httpx.Response:
    return client.post("/basic_generate", json={"prompt": prompt})


def test_health_answers_while_a_pass_runs(parts: Any, patience: float, scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(parts) as client:
        running = pool.submit(ask, client, f"hold {gate.port}")
        gate.wait()
        try:
            assert client.get("/health", timeout=patience).status_code == 200
        except httpx.TimeoutException:
            pytest.fail("the event loop was frozen: /health did not answer while a pass ran")
        finally:
            gate.open()
        assert running.result(30).status_code == 200


def test_a_full_queue_refuses_with_retry_after(scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(stage.parts.Parts(), max_queue=2) as client:
        hold = f"hold {gate.port}"
        accepted = [pool.submit(ask, client, hold)]
        gate.wait()
        while client.get("/stats").json()["queued"] < 2:
            if len(accepted) < 3:
                accepted.append(pool.submit(ask, client, hold))
        refused = ask(client, "one too many")
        assert refused.status_code == 503
        assert "2 waiting" in refused.json()["error"]["message"]
        assert int(refused.headers["Retry-After"]) >= 1
        pool.submit(lambda: [gate.open(), gate.wait(), gate.open(), gate.wait(), gate.open()])
        assert [call.result(30).status_code for call in accepted] == [200, 200, 200]
        counted = client.get("/stats").json()
        assert counted["requests"] == {"completed": 3, "refused": 1, "failed": 0, "hung_up": 0}
        assert counted["queued"] == counted["running"] == 0


def test_a_worker_error_is_a_500_with_a_request_id(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts()) as client:
        failed = ask(client, "raise")
        assert failed.status_code == 500
        assert "scripted trouble" in failed.json()["error"]["message"]
        assert len(failed.json()["error"]["request_id"]) == 32
        assert ask(client, "hello").json() == {"generated_text": "hello"}


def test_health_tells_of_a_lost_child_until_it_is_replaced(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts()) as client:
        app_sees = []
        died = ask(client, "die")
        app_sees.append(client.get("/health"))
        assert died.status_code == 503
        assert int(died.headers["Retry-After"]) >= 1
        for _ in range(10_000):
            app_sees.append(client.get("/health"))
            if app_sees[-1].status_code == 200:
                break
        statuses = [response.status_code for response in app_sees]
        assert statuses[0] == 503
        assert set(statuses[:-1]) == {503}
        assert statuses[-1] == 200
        assert ask(client, "hello").json() == {"generated_text": "hello"}


def test_one_engine_is_built_before_the_first_request(scripted: Callable[..., Any]) -> None:
    built: list[Any] = []

    class Counted(stage.engine.Engine):
        def start(self) -> None:
            built.append(self)
            super().start()

    with scripted(stage.parts.Parts(engine=Counted)) as client:
        assert len(built) == 1
        assert [ask(client, prompt).status_code for prompt in ("one", "two")] == [200, 200]
    assert len(built) == 1


def test_the_tenth_of_ten_users_waits_for_nine_others() -> None:
    """The seed's sum, under a fake clock: 256 tokens at 25 ms make 6.4 s; the second waits that, the tenth 57.6 s."""
    now, turn = [0.0], threading.Lock()
    everyone, waits = threading.Barrier(10), []

    class OneAtATime:
        def execute(self, batch: list[Any]) -> Any:
            everyone.wait(30)  # all ten have arrived
            with turn:
                began = now[0]
                waits.append(began)
                now[0] += 256 * 0.025
                return [stage.sequence.Completion("", 256)], stage.stats.Work(1, began=began, seconds=now[0] - began)

    async def ten() -> Any:
        engine: Any = stage.engine.Engine(OneAtATime(), 128, stage.trace.Tracer(), clock=lambda: now[0])
        await asyncio.gather(*(engine.generate("a prompt", 50) for _ in range(10)))
        return engine

    engine = asyncio.run(ten())
    assert waits[0] == 0
    assert waits[1] == pytest.approx(6.4)
    assert waits[9] == pytest.approx(57.6)
    assert engine.snapshot()["passes"] == 10
    assert engine.snapshot()["queue_seconds"] == pytest.approx(sum(waits))
