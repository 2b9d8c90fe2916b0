"""The gateway to vLLM, against a stand-in that speaks vLLM's protocol over real HTTP."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from flo.servers import stage_command, stage_environment
from tests.serving import Stage
from tests.stage_03.vllm_stand_in import COMPLETIONS, MODELS, TEXT, StandIn, vllm_stand_in

stage = Stage("03_continuous_streaming")
BODY = {"prompt": "Count from 3 to 9:", "temperature": 0.0}


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    with vllm_stand_in() as served:
        yield served


@pytest.fixture
def vllm(stand_in: StandIn) -> StandIn:
    stand_in.start_over()
    return stand_in


def ask(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/generate_vllm", json={**BODY, **more})


def trouble(gateway: Any) -> Any:
    """What a request through this gateway raises."""

    async def generate() -> Exception:
        try:
            text = await gateway.generate("Count from 3 to 9:", 20, 0.0, None)
        except Exception as exc:
            return exc
        finally:
            await gateway.close()
        pytest.fail(f"there was an answer: {text!r}")

    return asyncio.run(generate())


def test_vllm_is_asked_what_the_client_asked(parts: Any, scripted: Callable[..., Any], vllm: StandIn) -> None:
    with scripted(parts, vllm_url=vllm.url) as client:
        first = ask(client)
        second = ask(client, max_new_tokens=512, temperature=1.5, seed=7)
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json() == {"generated_text": TEXT}
    shared = {"model": "stand-in", "prompt": "Count from 3 to 9:", "ignore_eos": False}
    assert vllm.asked == [
        {**shared, "max_tokens": 20, "temperature": 0, "seed": None},
        {**shared, "max_tokens": 512, "temperature": 1.5, "seed": 7},
    ]


def test_bad_input_never_reaches_vllm(scripted: Callable[..., Any], vllm: StandIn) -> None:
    with scripted(stage.parts.Parts(), vllm_url=vllm.url) as client:
        refused = [ask(client, prompt=""), ask(client, max_new_tokens=513), ask(client, temperature=3.0)]
    assert [answer.status_code for answer in refused] == [422] * 3
    assert vllm.asked == []


def test_without_a_vllm_the_answer_says_how_to_have_one(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts()) as client:
        answer = ask(client)
    assert answer.status_code == 503
    assert "start `vllm serve MODEL`, then this with --vllm-url" in answer.json()["error"]["message"]


def test_other_requests_are_served_while_vllm_thinks(
    parts: Any, patience: float, scripted: Callable[..., Any], vllm: StandIn
) -> None:
    with scripted(parts, vllm_url=vllm.url) as client, ThreadPoolExecutor() as pool:
        with vllm.holding():
            asking = pool.submit(ask, client)
            assert vllm.arrived.wait(30)
            try:
                health = client.get("/health", timeout=patience)
            except httpx.TimeoutException:
                pytest.fail("the event loop was blocked while vLLM was thinking")
            assert health.status_code == 200
        assert asking.result(30).json() == {"generated_text": TEXT}


def test_a_hang_up_ends_the_request_to_vllm(
    parts: Any, patience: float, scripted: Callable[..., Any], vllm: StandIn
) -> None:
    body = json.dumps(BODY).encode()
    head = f"POST /generate_vllm HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with scripted(parts, vllm_url=vllm.url) as client, vllm.holding():
        with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
            assert vllm.arrived.wait(30)
        assert vllm.hung_up.wait(patience), "vLLM went on thinking for a client that had hung up"


@pytest.mark.parametrize("path", [MODELS, COMPLETIONS])
def test_a_vllm_that_does_not_answer_in_time_is_a_504(scripted: Callable[..., Any], vllm: StandIn, path: str) -> None:
    parts = replace(stage.parts.Parts(), gateway=partial(stage.vllm_gateway.Gateway, answer=0.2))
    with scripted(parts, vllm_url=vllm.url) as client, vllm.holding(path):
        answer = ask(client)
        assert vllm.hung_up.wait(30), "the request to vLLM went on"
    assert answer.status_code == 504
    assert f"the vLLM server at {vllm.url} did not answer in time" in answer.json()["error"]["message"]


def test_what_vllm_refuses_is_a_502_with_its_reason(scripted: Callable[..., Any], vllm: StandIn) -> None:
    vllm.replies[COMPLETIONS] = 400, b'{"error": {"message": "max_tokens is too large", "code": 400}}'
    with scripted(stage.parts.Parts(), vllm_url=vllm.url) as client:
        answer = ask(client)
        assert client.get("/health").status_code == 200
    assert answer.status_code == 502
    assert "answered 400" in answer.json()["error"]["message"]
    assert "max_tokens is too large" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "status", "body", "message"),
    [
        (COMPLETIONS, 500, b"Internal Server Error", "answered 500: Internal Server Error"),
        (COMPLETIONS, 503, b"", "answered 503"),
        (COMPLETIONS, 307, b"", "answered 307"),
        (COMPLETIONS, 400, b"\xff\x00", "answered 400"),
        (MODELS, 404, b'{"detail": "Not Found"}', "answered 404"),
        (COMPLETIONS, 200, b"<html>", "no completion"),
        (COMPLETIONS, 200, b"", "no completion"),
        (COMPLETIONS, 200, b'"\xff"', "no completion"),
        (COMPLETIONS, 200, b"[]", "no completion"),
        (COMPLETIONS, 200, b"{}", "no completion"),
        (COMPLETIONS, 200, b'{"choices": []}', "no completion"),
        (COMPLETIONS, 200, b'{"choices": [{"text": null}]}', "no completion"),
        (COMPLETIONS, 200, b'{"choices": [{"text": 5}]}', "no completion"),
        (COMPLETIONS, 200, b'{"choices": [{"text": "\\ud800"}]}', "no completion"),
        (MODELS, 200, b"null", "no completion"),
        (MODELS, 200, b'{"data": []}', "no completion"),
    ],
)
def test_every_error_of_vllm_is_a_bad_upstream(
    vllm: StandIn, path: str, status: int, body: bytes, message: str
) -> None:
    vllm.replies[path] = status, body
    error = trouble(stage.vllm_gateway.Gateway(vllm.url))
    assert isinstance(error, stage.vllm_gateway.BadUpstream)
    assert error.status == 502
    assert error.message.startswith(f"the vLLM server at {vllm.url} answered ")
    assert message in error.message


def test_a_vllm_that_is_not_there_is_a_bad_upstream() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        error = trouble(stage.vllm_gateway.Gateway(f"http://127.0.0.1:{taken.getsockname()[1]}"))
    assert isinstance(error, stage.vllm_gateway.BadUpstream)
    assert "cannot be reached" in error.message


def test_a_vllm_that_dies_in_between_is_a_bad_upstream() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        listener.settimeout(30)
        pool.submit(lambda: listener.accept()[0].close())
        error = trouble(stage.vllm_gateway.Gateway(f"http://127.0.0.1:{listener.getsockname()[1]}"))
    assert isinstance(error, stage.vllm_gateway.BadUpstream)
    assert "cannot be reached" in error.message


@pytest.mark.parametrize(
    "url", ["vllm", "127.0.0.1:8100", "localhost:8100", "ftp://127.0.0.1", "http://", "http://h:port", "http://h:70000"]
)
def test_an_address_that_is_none_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ValueError, match="--vllm-url must be an address such as "):
        stage.vllm_gateway.Gateway(url)


def test_a_user_sees_one_line_about_a_bad_address() -> None:
    command = stage_command("03", "--port", "0", "--vllm-url", "http://h:port")
    ended = subprocess.run(command, env=stage_environment(), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith(
        "error: --vllm-url must be an address such as http://127.0.0.1:8100, not http://h:port"
    )
