"""The real server in a process of its own, with the shipped model, over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

JSON = {"content-type": "application/json"}


def counting(a: int, b: int) -> tuple[str, str]:
    return f"Count from {a} to {b}:", "".join(f" {number}" for number in range(a, b + 1))


def test_it_counts(client: httpx.Client) -> None:
    answer = client.post("/basic_generate", json={"prompt": "Count from 3 to 9:"})
    assert answer.status_code == 200
    assert answer.json() == {"generated_text": " 3 4 5 6 7 8 9"}


def test_it_stops_at_the_limit(client: httpx.Client) -> None:
    answer = client.post("/basic_generate", json={"prompt": "Count from 3 to 9:", "max_new_tokens": 2})
    assert answer.json() == {"generated_text": " 3 4"}


def test_32_concurrent_clients_each_get_their_own_answer(client: httpx.Client) -> None:
    pairs = [counting(start, start + 5 + start % 7) for start in range(32)]
    before = client.get("/stats").json()

    def ask(pair: tuple[str, str]) -> str:
        return client.post("/basic_generate", json={"prompt": pair[0]}).json()["generated_text"]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, pairs)) == [expected for _, expected in pairs]
    after = client.get("/stats").json()
    assert after["passes"] - before["passes"] == 32
    assert after["queue_seconds"] > before["queue_seconds"]


def test_ten_users_cost_ten_passes(client: httpx.Client) -> None:
    before = client.get("/stats").json()["passes"]
    with ThreadPoolExecutor(10) as pool:
        calls = [pool.submit(client.post, "/basic_generate", json={"prompt": "Count from 1 to 4:"}) for _ in range(10)]
        assert {call.result(60).json()["generated_text"] for call in calls} == {" 1 2 3 4"}
    assert client.get("/stats").json()["passes"] - before == 10


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({}, "prompt", "required"),
        ({"prompt": ""}, "prompt", "at least 1"),
        ({"prompt": 5}, "prompt", "string"),
        ({"prompt": ["a"]}, "prompt", "string"),
        ({"prompt": None}, "prompt", "string"),
        ({"prompt": "a", "temperature": 1}, "temperature", "not permitted"),
        ({"prompt": "word " * 2000}, "prompt", "974"),
        ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens", "greater than or equal to 1"),
        ({"prompt": "a", "max_new_tokens": 51}, "max_new_tokens", "less than or equal to 50"),
        ({"prompt": "a", "max_new_tokens": "5"}, "max_new_tokens", "integer"),
        ({"prompt": "a", "max_new_tokens": 5.5}, "max_new_tokens", "integer"),
        ({"prompt": "a", "max_new_tokens": True}, "max_new_tokens", "integer"),
        ([], "body", "object"),
        ("text", "body", "object"),
    ],
)
def test_bad_input_names_the_field_and_the_limit(client: httpx.Client, body: Any, field: str, limit: str) -> None:
    answer = client.post("/basic_generate", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field
    assert field in answer.json()["error"]["message"]
    assert limit in answer.json()["error"]["message"]


UNREADABLE = "must be JSON in UTF-8"


@pytest.mark.parametrize(
    ("body", "status", "field", "said"),
    [
        (b"", 422, "body", "required"),
        (b"{", 422, "body", "JSON"),
        (b'{"prompt": "a", "max_new_tokens": NaN}', 422, "max_new_tokens", "integer"),
        (b'{"prompt": NaN}', 422, "prompt", "string"),
        (b'{"prompt": "a", "max_new_tokens": 1e999}', 422, "max_new_tokens", "integer"),
        (b'{"prompt": "a", "max_new_tokens": ' + b"9" * 5000 + b"}", 400, "body", UNREADABLE),
        (b'{"prompt": "\\ud800"}', 422, "prompt", "string"),
        (b'{"\\ud800": "a"}', 422, "body", "unicode string"),
        (b'{"prompt": "a", "\\udc00": "a"}', 422, "body", "unicode string"),
        (b'{"prompt": "\xff"}', 400, "body", UNREADABLE),
        (b"[" * 100_000, 400, "body", UNREADABLE),
    ],
)
def test_what_is_no_json_or_no_text_is_refused(
    client: httpx.Client, body: bytes, status: int, field: str, said: str
) -> None:
    answer = client.post("/basic_generate", content=body, headers=JSON)
    assert answer.status_code == status
    assert answer.json()["error"]["field"] == field
    assert answer.json()["error"]["message"].startswith(f"{field}: ")
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_wrong_content_type_is_told_the_right_one(client: httpx.Client, content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = client.post("/basic_generate", content=b'{"prompt": "a"}', headers=headers)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "body"
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


def test_a_refused_prompt_costs_no_pass(client: httpx.Client) -> None:
    before = client.get("/stats").json()
    assert client.post("/basic_generate", json={"prompt": "word " * 2000}).status_code == 422
    after = client.get("/stats").json()
    assert after["requests"].pop("refused") == before["requests"].pop("refused") + 1
    for counter in ("requests", "passes", "forward_passes", "row_steps", "queue_seconds"):
        assert after[counter] == before[counter]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_one_mebibyte_is_refused(client: httpx.Client, chunked: bool) -> None:
    body = b'{"prompt": "' + b"a" * (1 << 20) + b'"}'
    answer = client.post("/basic_generate", content=iter([body]) if chunked else body, headers=JSON)
    assert answer.status_code == 413
    assert "body: at most 1048576 bytes" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "prompt", ["\x00", "</s>", "<pad>" * 40, "naïve 推論 🧠", "\u202e\ufeff", " " * 500, "a\r\n\tb"]
)
def test_odd_text_is_answered(client: httpx.Client, prompt: str) -> None:
    assert client.post("/basic_generate", json={"prompt": prompt, "max_new_tokens": 3}).status_code == 200


def test_unknown_routes_and_methods_answer_in_the_same_form(client: httpx.Client) -> None:
    for answer, status in ((client.get("/nothing"), 404), (client.get("/basic_generate"), 405)):
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
