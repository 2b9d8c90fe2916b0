"""Engine cores that die, hang, or never come up: who is told, who goes on, and what is left."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.processes import descendants, the_child, wait_gone
from tests.serving import Stage, serving
from tests.stage_07.apps import app_of, openai_for, scripted, wait_for, wait_until
from tests.stage_07.scripted import Cores
from tests.stage_07.scripted_worker import STUCK

stage = Stage("07_paged_attention")


def ask(client: httpx.Client, prompt: str, **body: Any) -> httpx.Response:
    return client.post("/v1/completions", json={"prompt": prompt, **body})


def test_health_tells_of_a_core_that_is_gone(parts: Any) -> None:
    gate = threading.Event()
    with scripted(parts, Cores(losses={1: gate})) as client:
        assert client.get("/health").status_code == 200
        assert ask(client, "die").status_code == 503
        health = client.get("/health")
        assert health.status_code == 503, "a server without a core says that it is healthy"
        assert health.headers["Retry-After"] == "1"
        refused = ask(client, "ab")
        assert refused.status_code == 503
        assert "restarted" in refused.json()["error"]["message"]
        gate.set()
        wait_until(client, "/health", lambda health: "status" in health)
        assert ask(client, "ab").json()["choices"][0]["text"] == "ab"


@pytest.mark.parametrize(
    ("prompt", "reason"), [("die", "died"), ("dead", "scripted last words"), ("hang", "silent"), ("stall", "silent")]
)
def test_a_lost_core_fails_its_requests_at_once_and_is_replaced(prompt: str, reason: str) -> None:
    cores = Cores()
    with scripted(cores=cores, deadline=0.3) as client, openai_for(client) as official:
        lost = ask(client, prompt)
        assert lost.status_code == 503
        assert lost.headers["Retry-After"] == "1"
        assert reason in lost.json()["error"]["message"]
        wait_until(client, "/health", lambda health: "status" in health)
        assert ask(client, "ab").json()["choices"][0]["text"] == "ab"
        with pytest.raises(openai.APIError, match=reason):
            list(official.completions.create(model="tiny-opt", prompt=prompt, stream=True))
        wait_until(client, "/health", lambda health: "status" in health)
        assert client.get("/stats").json()["requests"] == {"completed": 1, "refused": 0, "failed": 2, "hung_up": 0}
        assert len(cores.launched) == 3
        assert not cores.launched[0].is_alive(), "the lost one was ended"


def test_with_several_cores_the_others_go_on() -> None:
    gate = threading.Event()
    cores = Cores(manual=True, losses={2: gate})
    with ThreadPoolExecutor() as pool, scripted(cores=cores, data_parallel_size=2) as client:
        by_number = {core.core: core for core in cores.launched}
        doomed = pool.submit(ask, client, "die")
        by_number[0].wait_for("Add")
        fine = pool.submit(ask, client, "abc")
        by_number[1].wait_for("Add")
        by_number[1].step()
        by_number[0]._go.release()
        assert doomed.result(30).status_code == 503
        health = client.get("/health")
        assert (health.status_code, health.json()["cores"]) == (200, ["restarting", "ready"])
        third = pool.submit(ask, client, "xyz")
        by_number[1].wait_for("Add", 2)
        cores.manual = False
        assert fine.result(30).json()["choices"][0]["text"] == "abc"
        assert third.result(30).json()["choices"][0]["text"] == "xyz"
        gate.set()
        wait_until(client, "/health", lambda health: health["cores"] == ["ready", "ready"])


def test_requests_go_to_the_least_loaded_core() -> None:
    cores = Cores(manual=True)
    with ThreadPoolExecutor() as pool, scripted(cores=cores, data_parallel_size=2) as client:
        asked = [pool.submit(ask, client, prompt) for prompt in ("ab", "cd", "ef", "gh")]
        first, second = cores.launched
        first.wait_for("Add", 2)
        second.wait_for("Add", 2)
        cores.manual = False
        assert sorted(one.result(30).json()["choices"][0]["text"] for one in asked) == ["ab", "cd", "ef", "gh"]
        wait_for(client, running=0, queued=0)
        assert client.get("/stats").json()["cores"].keys() == {"0", "1"}
        assert 'num_requests_running{engine="1",model_name="tiny-opt"} 0.0' in client.get("/metrics").text


def test_three_losses_while_starting_end_the_server() -> None:
    cores, fatal = Cores(losses={0: None, 1: None, 2: None}), threading.Event()
    engine = app_of(cores=cores).state.engine
    engine.on_fatal(fatal.set)
    with pytest.raises(stage.errors.EngineDead, match="lost 3 times"):
        engine.start()
    assert fatal.wait(30)
    engine.close()
    assert len(cores.launched) == 3


def test_what_would_not_help_is_not_tried_again() -> None:
    cores = Cores(losses={0: stage.messages.Dead(0, "no such device: abacus", unusable=True)})
    engine = app_of(cores=cores).state.engine
    with pytest.raises(stage.errors.EngineDead, match="no such device: abacus"):
        engine.start()
    engine.close()
    assert len(cores.launched) == 1


def test_three_losses_after_a_good_start_end_the_server_too() -> None:
    app, fatal = app_of(cores=Cores(losses={1: None, 2: None, 3: None})), threading.Event()
    app.state.engine.on_fatal(fatal.set)
    with serving(app) as client:
        assert ask(client, "die").status_code == 503
        assert fatal.wait(30)
        assert "lost 3 times" in client.get("/health").json()["error"]["message"]
        assert "lost 3 times" in ask(client, "ab").json()["error"]["message"]


def test_each_loss_makes_the_pause_longer_until_a_core_works_again() -> None:
    losses = stage.async_client.Losses()
    pauses = [losses.count(was_ready=True, worked=False) for _ in range(7)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert losses.count(was_ready=True, worked=True) == 0.1
    assert losses.count(was_ready=False, worked=False) == 0.2
    assert [losses.count(was_ready=True, worked=False) for _ in range(2000)][-1] == 5.0


def test_losses_at_the_start_are_forgotten_once_a_core_was_ready() -> None:
    losses, starting = stage.async_client.Losses(), []
    for was_ready in (False, False, True, False):
        losses.count(was_ready, worked=False)
        starting.append(losses.starting)
    assert starting == [1, 2, 0, 1]


def test_a_core_that_has_just_been_replaced_has_its_whole_pool() -> None:
    with scripted() as client:
        assert client.get("/stats").json()["blocks_free"] == 256, "before its first step"
        assert ask(client, "die").status_code == 503
        wait_until(client, "/health", lambda health: "status" in health)
        assert client.get("/stats").json()["blocks_free"] == 256


@pytest.fixture
def with_a_worker() -> Iterator[tuple[httpx.Client, Any, int]]:
    """A server whose core and worker are processes of their own; the core, and the worker's process id."""
    cores: list[Any] = []

    def launch(*arguments: Any) -> Any:
        cores.append(stage.core_link.spawn_core(*arguments))
        return cores[-1]

    parts = stage.parts.Parts(worker="tests.stage_07.scripted_worker:Worker", launch=launch)
    engine = stage.config.EngineConfig(distributed_executor_backend="mp")
    app = stage.server.create_app(stage.settings.Settings(engine, deadline=1.0), parts)
    with serving(app) as client:
        yield client, cores[0], the_child(cores[0].pid)


def test_a_worker_that_is_killed_is_told_in_plain_words(with_a_worker: Any) -> None:
    client, _, worker = with_a_worker
    os.kill(worker, signal.SIGKILL)
    answer = ask(client, "ab")
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the worker's process died"


def test_a_worker_that_is_stuck_ends_with_its_core(with_a_worker: Any) -> None:
    client, core, _ = with_a_worker
    family = descendants(core.pid)
    answer = client.post("/v1/completions", json={"prompt": [STUCK]})
    assert answer.status_code == 503
    assert "silent for longer than the deadline of 1 s" in answer.json()["error"]["message"]
    assert wait_gone({core.pid, *family}) == set()


def test_closing_tells_whoever_waits_and_leaves_nothing() -> None:
    cores = Cores(manual=True)
    app = app_of(cores=cores)
    with ThreadPoolExecutor() as pool, serving(app) as client:
        waiting = pool.submit(ask, client, "abc")
        cores.launched[0].wait_for("Add")
        threading.Thread(target=app.state.engine.close).start()
        answer = waiting.result(30)
        assert answer.status_code == 503
        assert "closing" in answer.json()["error"]["message"]
    assert not cores.launched[0].is_alive()
    assert not [thread for thread in threading.enumerate() if thread.name == "async client"]


def test_closing_what_never_started_is_harmless() -> None:
    app_of().state.engine.close()
