"""The real server in a process of its own, with the models that ship, over HTTP."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stage_06.asking import ends_well, events, predict, send_and_hang_up, text, wait_for

MODELS = json.loads((Path(__file__).resolve().parents[2] / "models" / "models.json").read_text())["models"]
FIRST, SECOND = [model["id"] for model in MODELS if model["framework"] == "causal-lm"]
IRIS = next(model["id"] for model in MODELS if model["name"] == "iris")
FLOWER = [5.1, 3.5, 1.4, 0.2]


def counted(first: int, last: int) -> tuple[str, str]:
    return f"Count from {first} to {last}:", "".join(f" {number}" for number in range(first, last + 1))


def loaded(client: httpx.Client) -> list[str]:
    return [model["id"] for model in client.get("/models").json()["loaded"]]


def test_three_models_on_two_slots_a_b_a_c_evicts_b(client: httpx.Client) -> None:
    prompt, answer = counted(3, 9)
    assert text(events(client, FIRST, prompt)) == answer
    assert predict(client, IRIS, FLOWER).status_code == 200
    assert text(events(client, FIRST, prompt)) == answer
    wait_for(client, pins=0)
    assert text(events(client, SECOND, prompt)) == answer
    assert loaded(client) == [FIRST, SECOND]


def test_while_both_ids_stream_a_third_model_is_refused(client: httpx.Client) -> None:
    body = {"max_new_tokens": 512, "ignore_eos": True}
    with ThreadPoolExecutor() as pool:
        streams = [pool.submit(events, client, name, "Count from 3 to 9:", **body) for name in (FIRST, SECOND)]
        wait_for(client, streams_running=2)
        refused = predict(client, IRIS, FLOWER)
        assert not any(stream.done() for stream in streams)
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
        said = [stream.result(60) for stream in streams]
    assert all(map(ends_well, said))
    assert [each[-2].json()["usage"]["completion_tokens"] for each in said] == [512, 512]
    assert text(said[0]) == text(said[1])
    assert text(said[0]).startswith(" 3 4 5 6 7 8 9")


def test_forty_streams_over_eight_places_all_get_their_own_text(client: httpx.Client) -> None:
    asked = [counted(number, number + number % 13) for number in range(40)]
    with ThreadPoolExecutor(40) as pool:
        said = list(pool.map(lambda pair: events(client, FIRST, pair[0]), asked))
    assert [text(each) for each in said] == [answer for _, answer in asked]
    stats = wait_for(client, pins=0, streams_running=0, streams_waiting=0, kv_bytes_used=0)
    assert stats["kv_bytes_wasted"] == stats["kv_bytes_reserved"] > 0


def test_a_stop_string_ends_the_text_before_it(client: httpx.Client) -> None:
    prompt, _ = counted(3, 12)
    said = events(client, FIRST, prompt, stop=[" 7 8", "nothing"])
    assert text(said) == " 3 4 5 6"
    assert said[-2].json()["finish_reason"] == "stop"
    assert text(events(client, FIRST, prompt, stop=[" 12 13"])) == counted(3, 12)[1]


def test_the_same_seed_gives_the_same_text(client: httpx.Client) -> None:
    options = {"temperature": 1.5, "seed": 5, "top_p": 0.95, "top_k": 50}
    one, other = (text(events(client, FIRST, "What is a queue?", **options)) for _ in range(2))
    assert one == other


def test_hang_ups_free_the_place_and_the_pin(client: httpx.Client) -> None:
    before = client.get("/stats").json()["requests"]["hung_up"]
    send_and_hang_up(client, FIRST, "Count from 3 to 90:", until=lambda: wait_for(client, streams_running=1))
    stats = wait_for(client, pins=0, streams_running=0, kv_bytes_used=0)
    assert stats["requests"]["hung_up"] == before + 1


@pytest.mark.parametrize(
    ("body", "status", "field", "said"),
    [
        ({"model_id": "nobody"}, 404, "model_id", "GET /models"),
        ({"model_id": IRIS}, 422, "model_id", "POST /predict"),
        ({"prompt": ""}, 422, "prompt", "at least 1"),
        ({"prompt": "\ud800"}, 422, "prompt", "prompt"),
        ({"prompt": "a " * 2000}, 422, "prompt", "context of 1024"),
        ({"max_new_tokens": 513}, 422, "max_new_tokens", "512"),
        ({"temperature": 2.5}, 422, "temperature", "2"),
        ({"top_p": 0}, 422, "top_p", "0"),
        ({"top_p": 1.5}, 422, "top_p", "1"),
        ({"top_k": -1}, 422, "top_k", "0"),
        ({"stop": "text"}, 422, "stop", "list"),
        ({"stop": ["a"] * 5}, 422, "stop", "4"),
        ({"stop": [""]}, 422, "stop[0]", "at least 1"),
        ({"seed": -1}, 422, "seed", "0"),
        ({"best_of": 2}, 422, "best_of", "not permitted"),
    ],
)
def test_bad_input_names_the_field_and_the_limit(
    client: httpx.Client, body: dict[str, Any], status: int, field: str, said: str
) -> None:
    content = json.dumps({"model_id": FIRST, "prompt": "Count from 3 to 9:", **body})
    answer = client.post("/generate_stream", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["field"] == field
    assert said in answer.json()["error"]["message"]


def test_what_streams_does_not_predict(client: httpx.Client) -> None:
    answer = predict(client, FIRST)
    assert answer.status_code == 422
    assert "POST /generate_stream" in answer.json()["error"]["message"]
