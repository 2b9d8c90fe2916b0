"""The real server in a process of its own, with the shipped model, over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest


def counting(a: int, b: int) -> tuple[str, str]:
    return f"Count from {a} to {b}:", "".join(f" {number}" for number in range(a, b + 1))


def test_what_the_stage_before_could_do_still_works(client: httpx.Client) -> None:
    answer = client.post("/basic_generate", json={"prompt": "Count from 3 to 9:"})
    assert answer.json() == {"generated_text": " 3 4 5 6 7 8 9"}


def test_64_prompts_come_back_in_the_order_asked(client: httpx.Client) -> None:
    pairs = [counting(start, start + start % 9) for start in range(64)]
    answer = client.post("/generate", json={"prompts": [prompt for prompt, _ in pairs]})
    assert answer.json() == {"generated_texts": [expected for _, expected in pairs]}


def test_ten_prompts_cost_three_passes(client: httpx.Client) -> None:
    pairs = [counting(start, start + 3) for start in range(10)]
    before = client.get("/stats").json()
    answer = client.post("/generate", json={"prompts": [prompt for prompt, _ in pairs]})
    assert answer.json() == {"generated_texts": [expected for _, expected in pairs]}
    after = client.get("/stats").json()
    assert after["passes"] - before["passes"] == 3
    assert after["row_steps"] - before["row_steps"] == 5 * 10


def test_32_concurrent_clients_each_get_their_own_answer(client: httpx.Client) -> None:
    pairs = [counting(start, start + 5 + start % 7) for start in range(32)]

    def ask(pair: tuple[str, str]) -> str:
        return client.post("/basic_generate", json={"prompt": pair[0]}).json()["generated_text"]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, pairs)) == [expected for _, expected in pairs]


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({}, "prompts", "required"),
        ({"prompts": []}, "prompts", "at least 1"),
        ({"prompts": ["a"] * 65}, "prompts", "at most 64"),
        ({"prompts": "a"}, "prompts", "list"),
        ({"prompts": ["a", ""]}, "prompts[1]", "at least 1"),
        ({"prompts": ["a", 5]}, "prompts[1]", "string"),
        ({"prompts": ["a", "word " * 2000]}, "prompts[1]", "974"),
        ({"prompts": ["a"], "max_new_tokens": 51}, "max_new_tokens", "less than or equal to 50"),
        ({"prompts": ["a"], "prompt": "a"}, "prompt", "not permitted"),
    ],
)
def test_bad_input_names_the_field_and_the_limit(client: httpx.Client, body: Any, field: str, limit: str) -> None:
    answer = client.post("/generate", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field
    assert field in answer.json()["error"]["message"]
    assert limit in answer.json()["error"]["message"]
