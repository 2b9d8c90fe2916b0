"""Routes and engine over HTTP, with a worker that follows a script."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serving import Gate, Stage, wait_for, wait_healthy

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
        accepted += [pool.submit(ask, client, hold) for _ in range(2)]
        wait_for(client, queued=2)
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
    """A child is loading as long as the gate is shut."""
    with ThreadPoolExecutor() as pool, Gate() as gate:
        pool.submit(lambda: [gate.wait(), gate.open()])  # the first one
        with scripted(stage.parts.Parts(), device=f"hold {gate.port}") as client:
            died = ask(client, "die")
            assert died.status_code == 503
            assert int(died.headers["Retry-After"]) >= 1
            gate.wait()
            for answer in (client.get("/health"), ask(client, "hello")):
                assert answer.status_code == 503
                assert answer.json()["error"]["message"] == "the model is being restarted"
                assert answer.headers["Retry-After"] == "1"
            gate.open_for_good()
            wait_healthy(client)
            assert ask(client, "hello").json() == {"generated_text": "hello"}


def test_one_engine_is_built_before_the_first_request(scripted: Callable[..., Any]) -> None:
    built: list[str] = []

    class Counted(stage.engine.Engine):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            built.append("engine")
            super().__init__(*args, **kwargs)

    with scripted(stage.parts.Parts(engine=Counted)) as client:
        assert built == ["engine"]
        assert [ask(client, prompt).status_code for prompt in ("one", "two")] == [200, 200]
    assert built == ["engine"]


def test_the_tenth_of_ten_users_waits_for_nine_others() -> None:
    """Under a fake clock: 256 tokens at 25 ms make 6.4 s; the second waits that, the tenth 57.6 s."""
    now, turn = [0.0], threading.Lock()
    everyone = threading.Barrier(10)

    class OneAtATime:
        """A pass takes its time, and there is one at a time."""

        def execute(self, batch: list[Any]) -> Any:
            everyone.wait(30)  # all ten have arrived
            with turn:
                began = now[0]
                now[0] += 256 * 0.025
                return [stage.sequence.Completion("", 256)], stage.stats.Work(1, began=began, seconds=now[0] - began)

    async def ten() -> tuple[list[float], dict[str, Any]]:
        engine: Any = stage.engine.Engine(OneAtATime(), 128, stage.trace.Tracer(), clock=lambda: now[0])

        async def wait_in_line() -> float:
            await engine.generate("a prompt", 50)
            return engine.snapshot()["queue_seconds"]

        return await asyncio.gather(*(wait_in_line() for _ in range(10))), engine.snapshot()

    totals, stats = asyncio.run(ten())
    totals.sort()
    waits = sorted(after - before for before, after in zip([0.0, *totals], totals, strict=False))
    assert waits == pytest.approx([6.4 * ahead for ahead in range(10)])
    assert (waits[1], waits[9]) == pytest.approx((6.4, 57.6))
    assert (stats["passes"], stats["forward_seconds"], stats["busy_time"]) == pytest.approx((10, 64.0, 1.0))
