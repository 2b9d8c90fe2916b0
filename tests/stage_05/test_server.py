"""The real server in a process of its own, with the models that ship, over HTTP."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from flo.servers import Server, running_stage

MODELS = Path(__file__).resolve().parents[2] / "models"
FRAMEWORKS = {"digits": "torchvision", "intents": "transformers", "iris": "onnx"}
BATCHES = {"digits": 4, "intents": 4, "iris": 3}
HOUR = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three models whose knobs the registry sets: full batches only, so that a test says who shares a pass."""
    folder = tmp_path_factory.mktemp("registry")
    common = {"type": "any", "version": "1", "description": "", "max_delay_ms": HOUR}
    models = [
        {"id": name, "name": str(MODELS / name), "framework": framework, "max_batch": BATCHES[name], **common}
        for name, framework in FRAMEWORKS.items()
    ]
    models.append({**models[-1], "id": "small", "max_queue": 2})
    (folder / "models.json").write_text(json.dumps({"models": models}))
    with running_stage("05", "--models", str(folder), "--slots", "3") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def samples(name: str, count: int) -> list[tuple[dict[str, Any], str]]:
    paths = sorted((MODELS / "samples").glob(f"{name}-*.json"))
    chosen = [paths[number % len(paths)] for number in range(count)]
    return [
        ({"model_id": name, "input_data": json.loads(path.read_text())["input_data"]}, path.stem.partition("-")[2])
        for path in chosen
    ]


def predict(client: httpx.Client, body: dict[str, Any]) -> list[str]:
    answer = client.post("/predict", json=body)
    assert answer.status_code == 200, answer.text
    return [prediction["label"] for prediction in answer.json()["predictions"]]


def parked(client: httpx.Client, name: str) -> int:
    return sum(model["waiting"] for model in client.get("/models").json()["loaded"] if model["id"] == name)


def test_eleven_inputs_for_three_models_cost_three_passes(client: httpx.Client) -> None:
    asked = [pair for name, count in BATCHES.items() for pair in samples(name, count)]
    assert len(asked) == 11
    for _ in range(2):  # the first time, they wait for their model to load
        before = client.get("/stats").json()
        with ThreadPoolExecutor(11) as pool:
            found = list(pool.map(lambda pair: predict(client, pair[0]), asked))
        assert found == [[label] for _, label in asked]
        after = client.get("/stats").json()
        assert after["passes"] - before["passes"] == 3
        assert after["row_steps"] - before["row_steps"] == 11


def test_a_list_shares_a_pass_and_comes_back_in_order(client: httpx.Client) -> None:
    pairs = samples("digits", 4)
    before = client.get("/stats").json()["passes"]
    body = {"model_id": "digits", "input_data": [body["input_data"] for body, _ in pairs]}
    assert predict(client, body) == [label for _, label in pairs]
    assert client.get("/stats").json()["passes"] - before == 1


def test_bad_input_is_refused_before_it_is_parked(client: httpx.Client) -> None:
    answer = client.post("/predict", json={"model_id": "iris", "input_data": [[1, 2, 3, 4], [1, 2]]})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "input_data[1]"
    assert parked(client, "iris") == 0


def test_who_hangs_up_while_parked_leaves_the_queue(client: httpx.Client) -> None:
    body = json.dumps(samples("iris", 1)[0][0]).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    before = client.get("/stats").json()
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
        connection.sendall(head.encode() + body)
        while parked(client, "iris") < 1:
            pass
    while client.get("/stats").json()["requests"]["hung_up"] == before["requests"]["hung_up"]:
        pass
    asked = samples("iris", 3)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda pair: predict(client, pair[0]), asked)) == [[label] for _, label in asked]
    after = client.get("/stats").json()
    assert after["passes"] - before["passes"] == 1
    assert after["row_steps"] - before["row_steps"] == 3


def test_a_full_queue_refuses_all_of_a_request(client: httpx.Client) -> None:
    rows = [body["input_data"] for body, _ in samples("iris", 3)]
    answer = client.post("/predict", json={"model_id": "small", "input_data": rows})
    assert answer.status_code == 503
    assert "2 of 2" in answer.json()["error"]["message"]
    assert int(answer.headers["Retry-After"]) >= 1
    assert client.get("/health").status_code == 200
