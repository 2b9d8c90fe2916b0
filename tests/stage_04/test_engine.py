"""Routes and engine over HTTP, with scripted workers."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import Stage, serving
from tests.stage_04.scripted import SECONDS, Script

stage = Stage("04_lru_models")
REFERENCE = stage.parts.Parts()


def ask(client: httpx.Client, model_id: str, input_data: Any = "hello") -> httpx.Response:
    return client.post("/predict", json={"model_id": model_id, "input_data": input_data})


def labels(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [prediction["label"] for prediction in answer.json()["predictions"]]


def test_with_three_models_on_two_slots_b_is_evicted(scripted: Callable[..., Any]) -> None:
    with scripted(REFERENCE) as client:
        assert [labels(ask(client, name)) for name in "abac"] == [["a 1"], ["b 1"], ["a 1"], ["c 1"]]
        assert [model["name"] for model in client.get("/models").json()["loaded"]] == ["a", "c"]
        assert labels(ask(client, "b")) == ["b 2"]
        stats = client.get("/stats").json()
        assert (stats["hits"], stats["misses"], stats["loads"], stats["evictions"]) == (1, 4, 4, 2)
        assert stats["passes"] == 5


def test_models_tells_state_and_bytes(scripted: Callable[..., Any], script: Script) -> None:
    with ThreadPoolExecutor() as pool, scripted(REFERENCE) as client:
        ask(client, "a")
        gate = script.hold("load b")
        loading = pool.submit(ask, client, "b")
        assert gate.reached.wait(SECONDS)
        listed = client.get("/models").json()
        gate.open.set()
        assert loading.result(30).status_code == 200
        assert [model["id"] for model in listed["available"]] == ["a", "b", "c", "unusable", "broken", "odd"]
        assert listed["loaded"] == [
            {"id": "a", "name": "a", "state": "ready", "bytes": 1, "calls": 0},
            {"id": "b", "name": "b", "state": "loading", "bytes": 0, "calls": 1},
        ]


def test_several_inputs_make_several_passes_or_none(scripted: Callable[..., Any]) -> None:
    with scripted(REFERENCE) as client:
        assert labels(ask(client, "a", ["one", "two", "three"])) == ["a 1"] * 3
        assert client.get("/stats").json()["passes"] == 3
        refused = ask(client, "a", ["one", "refuse"])
        assert refused.status_code == 422
        assert refused.json()["error"]["field"] == "input_data[1]"
        assert client.get("/stats").json()["passes"] == 3
        assert labels(ask(client, "a", [1, 2.5])) == ["a 1"]  # a list of numbers is one input
        assert labels(ask(client, "a", [[1, 2], [3, 4]])) == ["a 1"] * 2


@pytest.mark.parametrize(
    ("model_id", "status", "message"),
    [
        ("nobody", 404, "no model has this id"),
        ("odd", 500, "odd cannot be loaded: no framework 'abacus'"),
        ("unusable", 500, "unusable cannot be loaded: scripted trouble"),
        ("broken", 500, "broken cannot be loaded: no room for the weights"),
    ],
)
def test_what_cannot_be_had_is_named(scripted: Callable[..., Any], model_id: str, status: int, message: str) -> None:
    with scripted(REFERENCE) as client:
        answer = ask(client, model_id)
        assert answer.status_code == status
        assert message in answer.json()["error"]["message"]
        assert len(answer.json()["error"]["request_id"]) == 32
        assert client.get("/models").json()["loaded"] == []
        assert labels(ask(client, "a")) == ["a 1"]


def test_errors_of_a_call_are_mapped(scripted: Callable[..., Any]) -> None:
    with scripted(REFERENCE) as client:
        assert ask(client, "a", "raise").status_code == 500
        assert ask(client, "a", "lost").status_code == 502
        assert labels(ask(client, "a")) == ["a 2"]
        counted = client.get("/stats").json()["requests"]
        assert (counted["completed"], counted["refused"], counted["failed"]) == (1, 0, 2)


def test_a_full_queue_refuses_with_retry_after(scripted: Callable[..., Any], script: Script) -> None:
    with ThreadPoolExecutor() as pool, scripted(REFERENCE, max_queue=2) as client:
        gate = script.hold("predict a")
        accepted = [pool.submit(ask, client, "a") for _ in range(2)]
        while client.get("/stats").json()["queued"] < 2:
            pass
        refused = ask(client, "b")
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
        gate.open.set()
        assert [labels(call.result(30)) for call in accepted] == [["a 1"], ["a 1"]]


def test_a_caller_waits_no_longer_than_the_deadline(scripted: Callable[..., Any], script: Script) -> None:
    with scripted(REFERENCE, deadline=0.2) as client:
        gate = script.hold("load a")
        overdue = ask(client, "a")
        assert overdue.status_code == 503
        assert "0.2 s" in overdue.json()["error"]["message"]
        assert client.get("/health").status_code == 200
        gate.open.set()


def test_close_answers_whoever_waits(script: Script, tmp_path: Path) -> None:
    entry = {"id": "a", "name": "a", "type": "any", "framework": "scripted", "version": "1", "description": ""}
    (tmp_path / "models.json").write_text(json.dumps({"models": [entry]}))
    parts = stage.parts.Parts(workers={"scripted": script.worker})
    app = stage.server.create_app(stage.settings.Settings(models=tmp_path), parts)
    with ThreadPoolExecutor() as pool, serving(app) as client:
        gate = script.hold("predict a")
        waiting = pool.submit(ask, client, "a")
        assert gate.reached.wait(SECONDS)
        app.state.engine.close()
        answer = waiting.result(30)
        gate.open.set()
        assert answer.status_code == 503
        assert "closing" in answer.json()["error"]["message"]


def test_an_id_moves_across_frameworks_and_no_client_changes(script: Script, tmp_path: Path) -> None:
    """The same request, while the registry points the id at one framework after another."""
    kinds = ("first", "second", "third")
    workers = {kind: type(kind, (script.worker,), {}) for kind in kinds}
    found = []
    for kind in kinds:
        entry = {"id": "the-id", "name": f"by-{kind}", "type": "any", "framework": kind, "version": "1"}
        (tmp_path / "models.json").write_text(json.dumps({"models": [{**entry, "description": ""}]}))
        settings = stage.settings.Settings(models=tmp_path)
        with serving(stage.server.create_app(settings, stage.parts.Parts(workers=workers))) as client:
            found += labels(ask(client, "the-id", [1, 2, 3, 4]))
    assert found == ["by-first 1", "by-second 1", "by-third 1"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "No such file"),
        ("{", "JSON"),
        ('{"models": [{}]}', "models.0.id"),
        ('{"models": [], "more": 1}', "more"),
        (
            json.dumps(
                {"models": [dict.fromkeys(("id", "name", "type", "framework", "version", "description"), "x")] * 2}
            ),
            "same id",
        ),
    ],
)
def test_a_bad_registry_is_told_in_one_line(tmp_path: Path, text: str | None, complaint: str) -> None:
    if text is not None:
        (tmp_path / "models.json").write_text(text)
    with pytest.raises(ValueError, match=complaint) as caught:
        stage.registry.read_registry(tmp_path)
    assert "\n" not in str(caught.value)
