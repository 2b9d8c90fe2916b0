"""The real server in a process of its own, with the shipped model, over HTTP."""

import asyncio
import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from flo.servers import Server
from tests.serving import wait_for


def counting(a: int, b: int) -> tuple[str, str]:
    return f"Count from {a} to {b}:", "".join(f" {number}" for number in range(a, b + 1))


def stream(client: httpx.Client, prompt: str, **body: Any) -> tuple[str, dict[str, Any]]:
    """The text of one stream, and its last frame."""
    body = {"prompt": prompt, "temperature": 0, "max_new_tokens": 128, **body}
    answer = client.post("/generate_stream", json=body).raise_for_status()
    frames = [frame.removeprefix("data: ") for frame in answer.text.split("\n\n")[:-1]]
    assert frames.pop() == "[DONE]"
    data = [json.loads(frame) for frame in frames]
    return "".join(frame["token"] for frame in data[:-1]), data[-1]


def test_what_the_stages_before_could_do_still_works(client: httpx.Client) -> None:
    answer = client.post("/basic_generate", json={"prompt": "Count from 3 to 9:"})
    assert answer.json() == {"generated_text": " 3 4 5 6 7 8 9"}
    pairs = [counting(start, start + start % 9) for start in range(64)]
    answer = client.post("/generate", json={"prompts": [prompt for prompt, _ in pairs]})
    assert answer.json() == {"generated_texts": [expected for _, expected in pairs]}


def test_a_stream_counts_and_stops(client: httpx.Client) -> None:
    text, last = stream(client, "Count from 3 to 9:")
    assert text == " 3 4 5 6 7 8 9"
    assert last["finish_reason"] == "stop"
    assert last["usage"] == {"prompt_tokens": 8, "completion_tokens": 8}


def test_twenty_tokens_by_default(client: httpx.Client) -> None:
    answer = client.post("/generate_stream", json={"prompt": "Count from 1 to 90:", "temperature": 0})
    assert '"finish_reason": "length"' in answer.text
    assert '"completion_tokens": 20' in answer.text


def test_a_stream_may_run_to_512_tokens_past_its_stop_token(client: httpx.Client) -> None:
    _, last = stream(client, "Count from 1 to 3:", max_new_tokens=512, ignore_eos=True)
    assert last["finish_reason"] == "length"
    assert last["usage"]["completion_tokens"] == 512


def test_a_tiny_temperature_is_as_good_as_none(client: httpx.Client) -> None:
    assert stream(client, "Count from 3 to 9:", temperature=1e-40, seed=3)[0] == " 3 4 5 6 7 8 9"


def test_the_defaults_are_told(client: httpx.Client) -> None:
    fields = client.get("/openapi.json").json()["components"]["schemas"]["GenerateStream"]["properties"]
    defaults = {name: field.get("default") for name, field in fields.items()}
    assert defaults == {"prompt": None, "max_new_tokens": 20, "temperature": 0.7, "seed": None, "ignore_eos": False}


def test_the_same_seed_gives_the_same_text_whoever_else_is_there(client: httpx.Client) -> None:
    sampled = {"temperature": 1.5, "max_new_tokens": 30, "ignore_eos": True}
    alone, _ = stream(client, "What is a queue?", seed=5, **sampled)
    with ThreadPoolExecutor(8) as pool:
        company = [pool.submit(stream, client, f"Count from {n} to 60:", temperature=0.9) for n in range(7)]
        again, _ = stream(client, "What is a queue?", seed=5, **sampled)
        for one in company:
            one.result(60)
    other, _ = stream(client, "What is a queue?", seed=6, **sampled)
    assert again == alone
    assert other != alone


def test_answers_with_characters_that_span_tokens(client: httpx.Client) -> None:
    for question in (
        "What does 推論 mean?",
        "Can an emoji span several tokens?",
        "How many code points has one emoji?",
    ):
        blocking = client.post("/basic_generate", json={"prompt": question}).json()["generated_text"]
        text, _ = stream(client, question)
        assert text == blocking
        assert "\N{REPLACEMENT CHARACTER}" not in text


def test_64_streams_half_of_them_hanging_up(server: Server) -> None:
    """Distinct prompts; a seeded half of the clients leaves at a random moment; all others are exact."""
    chance = random.Random(64)
    leavers = set(chance.sample(range(64), 32))

    async def one(client: httpx.AsyncClient, number: int) -> str | None:
        first = number % 40
        prompt, expected = counting(first, first + 10 + number // 2)
        patience = chance.randint(0, 12) if number in leavers else None
        body = {"prompt": prompt, "temperature": 0, "max_new_tokens": 128}
        said = ""
        async with client.stream("POST", "/generate_stream", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if patience is not None and len(said) >= patience:
                    return None
                if line.startswith("data: {"):
                    said += json.loads(line[6:]).get("token", "")
        return said if said != expected else ""

    async def everybody() -> list[str | None]:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=server.url, timeout=90, limits=limits) as client:
            return await asyncio.gather(*(one(client, number) for number in range(64)))

    wrong = [said for number, said in enumerate(asyncio.run(everybody())) if number not in leavers and said != ""]
    assert wrong == []
    wait_for(server.client, running=0, queued=0)


def test_a_refused_prompt_costs_no_pass(client: httpx.Client) -> None:
    before = client.get("/stats").json()
    assert client.post("/basic_generate", json={"prompt": "word " * 2000}).status_code == 422
    after = client.get("/stats").json()
    assert after["requests"].pop("refused") == before["requests"].pop("refused") + 1
    for counter in ("requests", "passes", "forward_passes", "row_steps", "queue_seconds"):
        assert after[counter] == before[counter]


def test_the_counters_of_one_stream_are_quadratic(client: httpx.Client) -> None:
    before = client.get("/stats").json()
    _, last = stream(client, "Count from 3 to 9:", max_new_tokens=40, ignore_eos=True)
    after = client.get("/stats").json()
    p, n = last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]
    assert after["positions_attended"] - before["positions_attended"] == n * p + n * (n - 1) // 2
    assert after["forward_passes"] - before["forward_passes"] == n


@pytest.mark.parametrize(
    ("body", "field", "limit"),
    [
        ({}, "prompt", "required"),
        ({"prompt": ""}, "prompt", "at least 1"),
        ({"prompt": "word " * 2000}, "prompt", "1004"),
        ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens", "greater than or equal to 1"),
        ({"prompt": "a", "max_new_tokens": 513}, "max_new_tokens", "less than or equal to 512"),
        ({"prompt": "a", "temperature": -0.1}, "temperature", "greater than or equal to 0"),
        ({"prompt": "a", "temperature": 2.1}, "temperature", "less than or equal to 2"),
        ({"prompt": "a", "temperature": "hot"}, "temperature", "number"),
        ({"prompt": "a", "seed": -1}, "seed", "greater than or equal to 0"),
        ({"prompt": "a", "seed": 1 << 63}, "seed", "less than"),
        ({"prompt": "a", "seed": 1.5}, "seed", "integer"),
        ({"prompt": "a", "top_p": 0.5}, "top_p", "not permitted"),
    ],
)
def test_bad_input_names_the_field_and_the_limit(client: httpx.Client, body: Any, field: str, limit: str) -> None:
    answer = client.post("/generate_stream", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field
    assert field in answer.json()["error"]["message"]
    assert limit in answer.json()["error"]["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(client: httpx.Client, number: str) -> None:
    body = f'{{"prompt": "a", "temperature": {number}}}'
    answer = client.post("/generate_stream", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "temperature"


def test_without_vllm_the_gateway_says_what_to_do(client: httpx.Client) -> None:
    answer = client.post("/generate_vllm", json={"prompt": "a"})
    assert answer.status_code == 503
    assert "--vllm-url" in answer.json()["error"]["message"]
