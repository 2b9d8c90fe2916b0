"""The client against a small server that does to it, over real HTTP, what servers do."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse

from benchmarks.load import Client, Failed, closed_loop
from benchmarks.prompts import count, fixed
from benchmarks.records import Record, WrongAnswers, summarize
from benchmarks.sse import ServerEvent, SseParser
from tests.serving import serving

DONE = "data: [DONE]\n\n"
END = 'data: {"token": "", "finish_reason": "stop", "usage": {"completion_tokens": 4}}\n\n'
STREAMS = {
    "good": [
        'data: {"token": " 3", "sequence_id": "x"}\n\n',
        'data: {"token": " 4 5", "sequence_id": "x"}\n\n',
        END,
        DONE,
    ],
    "short": ['data: {"token": " 3 4 5", "sequence_id": "x"}\n\n', END.replace("4}", "3}"), DONE],
    "wrong": ['data: {"token": " 3 4 6", "sequence_id": "x"}\n\n', END, DONE],
    "error": ['data: {"token": " 3", "sequence_id": "x"}\n\n', 'event: error\ndata: {"error": "lost"}\n\n'],
    "cut off": ['data: {"token": " 3", "sequence_id": "x"}\n\n'],
    "malformed": ["data: {\n\n"],
}


CHUNK = 'data: {"choices": [{"index": 0, "text": "%s", "finish_reason": null}]}\n\n'
COMPLETIONS = {
    "good": [
        CHUNK % " 3",
        CHUNK % " 4 5",
        CHUNK % "",
        'data: {"choices": [], "usage": {"completion_tokens": 4}}\n\n',
        DONE,
    ],
    "short": [CHUNK % " 3 4 5", 'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n', DONE],
    "error": [CHUNK % " 3", 'data: {"error": {"message": "lost"}}\n\n', DONE],
}
"""the same as OpenAI's API has it"""


def fake_server() -> FastAPI:
    app = FastAPI()
    answers = {"good": (200, {"generated_text": " 3 4 5"}), "wrong": (200, {"generated_text": " 3 4 6"})}
    answers |= {"busy": (503, {"error": "full"}), "refused": (422, {}), "malformed": (200, {"text": ""})}

    @app.post("/{manner}/basic_generate")
    async def basic_generate(manner: str) -> JSONResponse:
        if manner == "hung":
            await asyncio.sleep(60)
        status, body = answers[manner]
        return JSONResponse(body, status)

    @app.post("/{manner}/generate_stream")
    async def generate_stream(manner: str, body: dict[str, object]) -> StreamingResponse:
        if body.get("temperature") != 0:
            return StreamingResponse(iter([]), 422)
        return StreamingResponse(iter(STREAMS[manner]), media_type="text/event-stream")

    @app.post("/{manner}/v1/completions")
    async def completions(manner: str, body: dict[str, object]) -> StreamingResponse:
        expected = {"prompt": "Count from 3 to 5:", "max_tokens": 50, "temperature": 0, "ignore_eos": False}
        right = body == expected | {"stream": True, "stream_options": {"include_usage": True}, "model_id": "x"}
        return StreamingResponse(iter(COMPLETIONS[manner] if right else []), 200 if right else 422)

    @app.get("/stats")
    async def stats() -> dict[str, int]:
        return {"passes": 3}

    return app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(fake_server()) as client:
        yield str(client.base_url)


def ask(url: str, path: str, timeout: float = 10.0) -> Record:
    async def main() -> Record:
        async with Client(url, path, timeout, {"model_id": "x"} if "completions" in path else None) as client:
            return await client.send(count(3, 5), 0.0)

    return asyncio.run(main())


def test_a_right_answer_counts_its_tokens_and_the_stop_token(url: str) -> None:
    record = ask(url, "/good/basic_generate")
    assert (record.outcome, record.tokens, record.pieces) == ("ok", 4, ())


def test_a_wrong_answer_is_found_and_shown(url: str) -> None:
    record = ask(url, "/wrong/basic_generate")
    assert (record.outcome, record.tokens) == ("wrong", 0)
    assert record.detail == "'Count from 3 to 5:' -> ' 3 4 6'"


@pytest.mark.parametrize(("manner", "outcome"), [("busy", "503"), ("refused", "422"), ("malformed", "malformed")])
def test_an_error_is_known_by_its_status(url: str, manner: str, outcome: str) -> None:
    assert ask(url, f"/{manner}/basic_generate").outcome == outcome


def test_a_hung_server_costs_no_more_than_the_timeout(url: str) -> None:
    assert ask(url, "/hung/basic_generate", timeout=0.05).outcome == "timeout"


def test_a_server_that_is_not_there_is_an_error_of_its_own() -> None:
    assert ask("http://127.0.0.1:1", "/basic_generate").outcome == "connection"


def test_a_stream_is_read_to_its_end_and_each_piece_timed(url: str) -> None:
    record = ask(url, "/good/generate_stream")
    assert (record.outcome, record.tokens, len(record.pieces)) == ("ok", 4, 2)
    assert list(record.pieces) == sorted(record.pieces)
    assert record.pieces[-1] <= record.finished


@pytest.mark.parametrize(
    ("manner", "outcome"),
    [
        ("wrong", "wrong"),
        ("short", "wrong"),
        ("error", "stream error"),
        ("cut off", "cut off"),
        ("malformed", "malformed"),
    ],
)
def test_a_stream_that_goes_wrong_is_no_success(url: str, manner: str, outcome: str) -> None:
    assert ask(url, f"/{manner}/generate_stream").outcome == outcome


@pytest.mark.parametrize(("manner", "outcome"), [("good", "ok"), ("short", "wrong"), ("error", "stream error")])
def test_a_stream_may_be_in_the_form_of_openai(url: str, manner: str, outcome: str) -> None:
    record = ask(url, f"/{manner}/v1/completions")
    assert (record.outcome, len(record.pieces)) == (outcome, 2 if manner == "good" else 1)


def test_a_stream_of_another_length_than_asked_for_is_found_by_its_usage(url: str) -> None:
    assert ask(url, "/short/generate_stream").detail == "'Count from 3 to 5:' -> 3 tokens, not 4"


def test_an_answer_of_any_kind_can_be_asked_for(url: str) -> None:
    async def main(path: str) -> object:
        async with Client(url) as client:
            return await client.post(path, {})

    assert asyncio.run(main("/good/basic_generate")) == {"generated_text": " 3 4 5"}
    with pytest.raises(Failed, match="503"):
        asyncio.run(main("/busy/basic_generate"))


def test_any_text_will_do_for_a_prompt_without_a_fixed_answer(url: str) -> None:
    async def main() -> Record:
        async with Client(url, "/good/basic_generate") as client:
            return await client.send(next(fixed("Once upon a time", 32)), 0.0)

    record = asyncio.run(main())
    assert (record.outcome, record.tokens) == ("ok", 32)


def test_many_users_at_once_and_a_wrong_answer_fails_the_cell(url: str) -> None:
    async def load(path: str) -> object:
        async with Client(url, path) as client:
            asked = iter([count(3, 5)] * 1000)
            return summarize([await closed_loop(client.send, asked, users=16, seconds=60.0, requests=48)])

    cell = asyncio.run(load("/good/basic_generate"))
    assert isinstance(cell, dict)
    assert (cell["completed"], cell["wrong"], cell["errors"]) == (48, 0, {})
    with pytest.raises(WrongAnswers, match="48 of 48"):
        asyncio.run(load("/wrong/basic_generate"))


def test_stats_are_read_where_there_are_any(url: str) -> None:
    async def main() -> list[object]:
        async with Client(url) as client:
            return [await client.get("/stats"), await client.get("/nothing")]

    assert asyncio.run(main()) == [{"passes": 3}, None]


@pytest.mark.parametrize("far", ["http://example.com", "http://10.0.0.1:8000", "http://127.0.0.1.example.com"])
def test_only_this_machine_is_put_under_load(far: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        Client(far)
    assert httpx.URL("http://[::1]:8000").host == "::1"


def test_events_are_parsed_as_the_standard_says() -> None:
    parser = SseParser()
    lines = [": a comment", "data: one", "data:two", "", "", "event: error", "data: x: y", "id: 7", "", "data: unended"]
    events = [event for line in lines if (event := parser.feed(line))]
    assert events == [ServerEvent("message", "one\ntwo"), ServerEvent("error", "x: y")]
