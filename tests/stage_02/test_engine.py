"""Routes, engine and driver over HTTP, with a worker that follows a script."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serving import Gate, Raw, Stage, eventually, wait_for, wait_healthy

stage = Stage("02_static_batching")


def ask(client: httpx.Client, prompt: str) -> httpx.Response:
    return client.post("/basic_generate", json={"prompt": prompt})


def test_the_event_loop_runs_while_a_caller_waits(parts: Any, patience: float, scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(parts) as client:
        running = pool.submit(ask, client, f"hold {gate.port}")
        gate.wait()
        try:
            assert client.get("/health", timeout=patience).status_code == 200
        except httpx.TimeoutException:
            pytest.fail("the whole server slept while one caller waited")
        finally:
            gate.open()
        assert running.result(30).status_code == 200


def test_two_callers_share_a_pass(scripted: Callable[..., Any]) -> None:
    """Whoever arrives during a pass rides in the next one, together."""
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(stage.parts.Parts()) as client:
        calls = [pool.submit(ask, client, f"hold {gate.port}")]
        gate.wait()
        calls += [pool.submit(ask, client, prompt) for prompt in ("early", "late")]
        wait_for(client, queued=2)
        gate.open()
        answers = [call.result(30).json()["generated_text"] for call in calls]
        assert answers == [f"hold {gate.port}", "early", "late"]
        stats = client.get("/stats").json()
        assert (stats["passes"], stats["row_steps"]) == (2, 3)


def test_ten_users_cost_three_passes(scripted: Callable[..., Any]) -> None:
    """Ten callers, each with a connection and a request of its own, who wait at the same time."""
    with ThreadPoolExecutor(11) as pool, Gate() as gate, scripted(stage.parts.Parts()) as client:
        held = pool.submit(ask, client, f"hold {gate.port}")
        gate.wait()
        ten = [pool.submit(ask, client, f"user {number}") for number in range(10)]
        wait_for(client, queued=10)
        gate.open()
        assert held.result(30).status_code == 200
        assert [call.result(30).json()["generated_text"] for call in ten] == [f"user {number}" for number in range(10)]
        stats = client.get("/stats").json()
        assert (stats["passes"] - 1, stats["row_steps"] - 1) == (3, 10)


def test_each_sequence_runs_once(parts: Any, scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(parts) as client:
        calls = [pool.submit(ask, client, f"hold {gate.port}")]
        gate.wait()
        calls.append(pool.submit(ask, client, "second"))
        eventually(lambda: sum(client.get("/stats").json()[where] for where in ("queued", "running")) >= 2, "both")
        gate.open_for_good()
        for call in calls:
            call.result(30)
        rows = wait_for(client, queued=0, running=0)["row_steps"]
        assert rows == 2, f"a sequence was run twice: {rows} rows for 2 sequences"


def test_a_poisoned_prompt_fails_alone(parts: Any, scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(parts) as client:
        first = pool.submit(ask, client, f"hold {gate.port}")
        gate.wait()
        innocent = pool.submit(ask, client, "innocent")
        wait_for(client, queued=1)
        guilty = pool.submit(client.post, "/generate", json={"prompts": ["fine", "raise"]})
        wait_for(client, queued=3)
        gate.open()
        assert first.result(30).status_code == 200
        assert innocent.result(30).status_code == 200, "one caller's prompt failed another's request"
        assert innocent.result(30).json() == {"generated_text": "innocent"}
        error = guilty.result(30)
        assert error.status_code == 500
        assert error.json()["error"]["field"] == "prompts[1]"
        assert "scripted trouble" in error.json()["error"]["message"]
        wait_for(client, queued=0, running=0)


def test_a_full_queue_estimates_when_to_come_back(scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(stage.parts.Parts(), max_queue=8) as client:
        assert ask(client, "one pass, for its length").status_code == 200
        held = pool.submit(ask, client, f"hold {gate.port}")
        gate.wait()
        eight = pool.submit(client.post, "/generate", json={"prompts": ["a"] * 8})
        wait_for(client, queued=8)
        refused = ask(client, "one too many")
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "2"  # eight waiting make two passes of the script's one second
        assert "8 of 8" in refused.json()["error"]["message"]
        gate.open()
        assert held.result(30).status_code == eight.result(30).status_code == 200


def test_who_hangs_up_in_the_queue_costs_no_pass(scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(stage.parts.Parts()) as client:
        held = pool.submit(ask, client, f"hold {gate.port}")
        gate.wait()
        with Raw(client, "/generate", b'{"prompts": ["gone", "gone too"]}'):
            wait_for(client, queued=2)
        wait_for(client, queued=0)
        gate.open()
        assert held.result(30).status_code == 200
        assert wait_for(client, running=0)["row_steps"] == 1


def test_who_hangs_up_in_a_pass_disturbs_nobody(scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(stage.parts.Parts()) as client:
        with Raw(client, "/basic_generate", f'{{"prompt": "hold {gate.port}"}}'.encode()):
            gate.wait()
        eventually(lambda: client.get("/stats").json()["requests"]["hung_up"] == 1, "the hang-up")
        following = pool.submit(ask, client, "hello")
        wait_for(client, queued=1)
        gate.open()
        assert following.result(30).json() == {"generated_text": "hello"}
        assert wait_for(client, running=0)["requests"] == {"completed": 1, "refused": 0, "failed": 0, "hung_up": 1}


def test_a_lost_child_fails_its_batch_and_the_next_one_works(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts()) as client:
        died = client.post("/generate", json={"prompts": ["hello", "die"]})
        assert died.status_code == 503
        assert int(died.headers["Retry-After"]) >= 1
        wait_healthy(client)
        assert ask(client, "hello").json() == {"generated_text": "hello"}


def test_closing_answers_whoever_waits(scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate:
        with scripted(stage.parts.Parts()) as client:
            calls = [pool.submit(ask, client, f"hold {gate.port}")]
            gate.wait()
            calls.append(pool.submit(ask, client, "waiting"))
            wait_for(client, queued=1)
        for call in calls:
            assert isinstance(call.exception(30), httpx.TransportError) or call.result().status_code >= 500
