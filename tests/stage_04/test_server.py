"""The real server in a process of its own, with the models that ship, over HTTP."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import Stage, serving

stage = Stage("04_lru_models")
SAMPLES = Path(__file__).resolve().parents[2] / "models" / "samples"
LOCAL = ("digits", "shapes", "intents", "iris")
JSON = {"content-type": "application/json"}


def samples() -> list[tuple[dict[str, Any], str]]:
    """Request bodies with their right answers, the models in turn."""
    paths = [path for path in SAMPLES.glob("*.json") if path.stem.partition("-")[0] in LOCAL]
    paths.sort(key=lambda path: path.stem[::-1])
    return [(json.loads(path.read_text()), path.stem.partition("-")[2]) for path in paths]


def one(name: str) -> dict[str, Any]:
    return json.loads(next(iter(sorted(SAMPLES.glob(f"{name}-*.json")))).read_text())


def test_every_sample_is_right_and_two_models_stay(client: httpx.Client) -> None:
    for body, label in samples():
        answer = client.post("/predict", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model_id"] == body["model_id"]
        [prediction] = answer.json()["predictions"]
        assert prediction["label"] == label
        assert 0 <= prediction["score"] <= 1
    loaded = client.get("/models").json()["loaded"]
    assert [model["state"] for model in loaded] == ["ready", "ready"]
    assert all(model["bytes"] > 0 for model in loaded)
    assert loaded[-1]["id"] == samples()[-1][0]["model_id"]


def test_32_concurrent_clients_each_get_their_own_answer(client: httpx.Client) -> None:
    asked = samples() * 2

    def ask(pair: tuple[dict[str, Any], str]) -> str:
        answer = client.post("/predict", json=pair[0])
        assert answer.status_code == 200, answer.text
        return answer.json()["predictions"][0]["label"]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, asked)) == [label for _, label in asked]
    stats = client.get("/stats").json()
    assert stats["resident"] <= 2
    assert stats["hits"] + stats["misses"] == stats["requests"]["completed"]


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({}, "model_id", "required"),
        ({"model_id": "x"}, "input_data", "required"),
        ({"model_id": 5, "input_data": "a"}, "model_id", "string"),
        ({"model_id": "", "input_data": "a"}, "model_id", "at least 1"),
        ({"model_id": "x", "input_data": "a", "more": 1}, "more", "not permitted"),
        ({**one("iris"), "input_data": []}, "input_data", "1 to 64"),
        ({**one("iris"), "input_data": [[1]] * 65}, "input_data", "1 to 64"),
        ({**one("iris"), "input_data": [1, 2, 3]}, "input_data", "list of 4 numbers, not of 3"),
        ({**one("iris"), "input_data": [[1, 2, 3, 4], [1]]}, "input_data[1]", "list of 4 numbers"),
        ({**one("digits"), "input_data": "no image"}, "input_data", "PNG or JPEG"),
        ({**one("intents"), "input_data": "word " * 100}, "input_data", "at most 64"),
    ],
)
def test_bad_input_names_the_field_and_the_limit(client: httpx.Client, body: Any, field: str, limit: str) -> None:
    answer = client.post("/predict", json=body)
    assert answer.status_code == 422
    assert field in answer.json()["error"]["message"]
    assert limit in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "data",
    [
        b"NaN",
        b"1e999",
        b"[NaN, 1, 1, 1]",
        b"[1e999, 1, 1, 1]",
        b"[" + b"9" * 500 + b", 1, 1, 1]",
        b'"\\ud800"',
        b"null",
    ],
)
def test_numbers_and_texts_that_are_none_are_refused(client: httpx.Client, data: bytes) -> None:
    body = b'{"model_id": "' + one("iris")["model_id"].encode() + b'", "input_data": ' + data + b"}"
    answer = client.post("/predict", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


def test_an_unknown_id_is_a_404(client: httpx.Client) -> None:
    answer = client.post("/predict", json={"model_id": "\u0000 nobody", "input_data": "a"})
    assert answer.status_code == 404
    assert answer.json()["error"]["field"] == "model_id"


def test_a_body_over_eight_mebibytes_is_refused(client: httpx.Client) -> None:
    body = b'{"model_id": "a", "input_data": "' + b"a" * (8 << 20) + b'"}'
    assert client.post("/predict", content=body, headers=JSON).status_code == 413


def test_a_triton_server_that_is_not_there_is_a_502(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]  # free again from here on
    entry = {"id": "w", "name": "wine", "type": "any", "framework": "triton", "version": "1", "description": ""}
    registry = {"models": [{**entry, "url": f"http://127.0.0.1:{port}"}]}
    (tmp_path / "models.json").write_text(json.dumps(registry))
    with serving(stage.server.create_app(stage.settings.Settings(models=tmp_path))) as client:
        answer = client.post("/predict", json={"model_id": "w", "input_data": {"features": [1]}})
        assert answer.status_code == 502
        assert answer.json()["error"]["message"].startswith(
            f"wine: the Triton server at http://127.0.0.1:{port} is gone"
        )
        assert client.get("/models").json()["loaded"] == []


@pytest.mark.parametrize("name", ["04_lru_models", "05_dynamic_batcher"])
def test_ids_that_stream_are_refused_and_evict_nobody(name: str) -> None:
    with serving(Stage(name).server.create_app(Stage(name).settings.Settings())) as client:
        assert client.post("/predict", json=one("iris")).status_code == 200
        before = client.get("/models").json()
        ids = [model["id"] for model in before["available"] if model["framework"] == "causal-lm"]
        assert len(ids) == 2
        for model_id in ids:
            answer = client.post("/predict", json={"model_id": model_id, "input_data": "Count from 3 to 9:"})
            assert answer.status_code == 500
            assert "tiny-opt cannot be loaded: no framework 'causal-lm'" in answer.json()["error"]["message"]
        assert client.get("/models").json() == before
