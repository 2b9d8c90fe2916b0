"""Streams over HTTP, with a worker that follows a script in a real child."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from httpx_sse import connect_sse

from tests.serving import Gate, Raw, Stage, eventually, serving, wait_for, wait_healthy

stage = Stage("03_continuous_streaming")


def events(client: httpx.Client, prompt: str, **body: Any) -> list[Any]:
    """All events of one stream, read by an off-the-shelf client."""
    body = {"prompt": prompt, "temperature": 0, "max_new_tokens": 100, **body}
    with connect_sse(client, "POST", "/generate_stream", json=body) as source:
        source.response.raise_for_status()
        return list(source.iter_sse())


def text(said: list[Any]) -> str:
    return "".join(event.json().get("token", "") for event in said if event.data != "[DONE]")


def asking(prompt: str, **more: Any) -> bytes:
    """The body of a request."""
    return json.dumps({"prompt": prompt, "temperature": 0, "max_new_tokens": 100, **more}).encode()


def test_a_stream_crosses_the_process_boundary(parts: Any, scripted: Callable[..., Any]) -> None:
    with scripted(parts) as client:
        said = events(client, "Hello, naïve 推論 🧠!")
        assert all(event.event != "error" for event in said), f"a live handle does not cross the pipe: {said[-1].data}"
        assert text(said) == "Hello, naïve 推論 🧠!"
        assert said[-1].data == "[DONE]"
        last = said[-2].json()
        assert last["finish_reason"] == "stop"
        assert last["usage"]["completion_tokens"] == last["usage"]["prompt_tokens"] + 1
        assert {event.json()["sequence_id"] for event in said[:-1]} == {last["sequence_id"]}


def test_the_headers_and_frames_of_a_stream(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts()) as client:
        answer = client.post("/generate_stream", json={"prompt": "ab", "max_new_tokens": 1})
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        frames = answer.text.split("\n\n")
        assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames[:-1])
        assert frames[-1] == ""
        assert '"finish_reason": "length"' in frames[-3]


def test_the_first_piece_comes_while_the_model_still_works(scripted: Callable[..., Any]) -> None:
    with Gate() as gate, scripted(stage.parts.Parts()) as client:
        body = {"prompt": f"hold {gate.port}", "temperature": 0}
        with connect_sse(client, "POST", "/generate_stream", json=body) as source:
            stream = source.iter_sse()
            gate.wait()
            gate.open()
            assert next(stream).json()["token"]
            gate.wait()  # the model is in its second step, and the first piece is here
            gate.open_for_good()
            assert list(stream)[-1].data == "[DONE]"


def test_trouble_mid_stream_is_an_error_event(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts()) as client:
        for prompt, reason in (("raise", "scripted trouble"), ("die", "died")):
            said = events(client, prompt)
            assert [event.event for event in said] == ["error"]
            assert reason in said[0].json()["message"]
            assert len(said[0].json()["sequence_id"]) == 32
            wait_healthy(client)
        assert text(events(client, "fine")) == "fine"


def test_both_lanes_share_one_batch(scripted: Callable[..., Any], tokenizer: Any) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(stage.parts.Parts()) as client:
        streaming = pool.submit(events, client, f"hold {gate.port}")
        gate.wait()
        blocking = pool.submit(client.post, "/generate", json={"prompts": ["one", "two"]})
        wait_for(client, queued=2)
        gate.open()
        gate.wait()
        wait_for(client, running=3, queued=0)
        gate.open_for_good()
        assert text(streaming.result(30)) == f"hold {gate.port}"
        assert blocking.result(30).json() == {"generated_texts": ["one", "two"]}
        steps = streaming.result()[-2].json()["usage"]["completion_tokens"]
        others = sum(len(tokenizer.rust.encode(prompt).ids) + 1 for prompt in ("one", "two"))
        after = wait_for(client, running=0)
        assert (after["passes"], after["row_steps"]) == (steps, steps + others)


def test_hanging_up_while_queued_frees_the_sequence(scripted: Callable[..., Any]) -> None:
    with ThreadPoolExecutor() as pool, Gate() as gate, scripted(stage.parts.Parts(), batch_size=1) as client:
        held = pool.submit(events, client, f"hold {gate.port}")
        gate.wait()
        with Raw(client, "/generate_stream", asking("gone")):
            wait_for(client, queued=1)
        wait_for(client, queued=0)
        gate.open_for_good()
        assert text(held.result(30)) == f"hold {gate.port}"
        stats = wait_for(client, running=0)
        assert stats["passes"] == stats["row_steps"] == len(held.result()[:-2]) + 1
        assert stats["requests"] == {"completed": 1, "refused": 0, "failed": 0, "hung_up": 1}


def test_hanging_up_mid_stream_frees_the_sequence_within_a_step(scripted: Callable[..., Any]) -> None:
    """After its first piece it has cost one row-step, and the one that was under way when it left."""
    with Gate() as gate, scripted(stage.parts.Parts()) as client:
        with Raw(client, "/generate_stream", asking(f"hold {gate.port} and on and on")) as stream:
            gate.wait()
            gate.open()
            assert b"token" in stream.read_until(b"}\n\n")
            gate.wait()  # in its second step
        wait_for(client, running=0)  # while that step is still going on
        gate.open_for_good()
        assert text(events(client, "next")) == "next"
        stats = wait_for(client, running=0)
        following = events(client, "next")[-2].json()["usage"]["completion_tokens"]
        assert stats["row_steps"] == 2 + following
        assert stats["requests"] == {"completed": 1, "refused": 0, "failed": 0, "hung_up": 1}


@pytest.mark.parametrize("path", ["/basic_generate", "/generate"])
def test_a_blocking_caller_that_hangs_up_frees_its_sequences(scripted: Callable[..., Any], path: str) -> None:
    with Gate() as gate, scripted(stage.parts.Parts(), batch_size=1) as client:
        prompt = f"hold {gate.port}"
        body = {"prompts": [prompt, "two", "three"]} if path == "/generate" else {"prompt": prompt}
        with Raw(client, path, json.dumps(body).encode()):
            gate.wait()
        wait_for(client, running=0, queued=0)
        gate.open_for_good()
        eventually(lambda: client.get("/stats").json()["requests"]["hung_up"] == 1, "the hang-up")
        assert text(events(client, "next")) == "next"


def test_no_stream_begins_while_there_is_no_model(scripted: Callable[..., Any]) -> None:
    """A child is loading as long as the gate is shut; the answer is a plain 503, and no stream with an error in it."""
    with ThreadPoolExecutor() as pool, Gate() as gate:
        pool.submit(lambda: [gate.wait(), gate.open()])  # the first one
        with scripted(stage.parts.Parts(), device=f"hold {gate.port}") as client:
            assert events(client, "die")[-1].event == "error"
            gate.wait()
            refused = client.post("/generate_stream", json={"prompt": "hello"})
            assert refused.status_code == 503
            assert refused.headers["content-type"] == "application/json"
            assert refused.headers["Retry-After"] == "1"
            assert refused.json()["error"]["message"] == "the model is being restarted"
            gate.open_for_good()
            wait_healthy(client)
            assert text(events(client, "hello")) == "hello"


def test_more_prompts_than_may_wait_can_never_be_served(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts(), max_queue=3) as client:
        refused = client.post("/generate", json={"prompts": ["a"] * 4})
        assert refused.status_code == 422
        assert refused.json()["error"]["field"] == "prompts"
        assert "at most 3 may wait" in refused.json()["error"]["message"]
        assert client.post("/generate", json={"prompts": ["a"] * 3}).status_code == 200


def test_others_are_served_while_a_long_prompt_is_tokenized(scripted: Callable[..., Any]) -> None:
    """No clock: `/health` must be answered between the beginning and the end of it."""
    began, ended = threading.Event(), threading.Event()

    class Told(stage.tokenization.Tokenizer):
        async def encode(self, text: str) -> list[int]:
            began.set()
            try:
                return await super().encode(text)
            finally:
                ended.set()

    body = json.dumps({"prompt": "推論 and naïve " * 50_000}).encode()[: (1 << 20) - 2] + b'"}'
    with ThreadPoolExecutor() as pool, scripted(stage.parts.Parts(tokenizer=Told)) as client:
        headers = {"content-type": "application/json"}
        asked = pool.submit(client.post, "/generate_stream", content=body, headers=headers)
        assert began.wait(30)
        meanwhile: list[int] = []
        while not ended.is_set():
            status = client.get("/health").status_code
            meanwhile += [] if ended.is_set() else [status]
        assert meanwhile, "/health was answered only when the prompt had been tokenized"
        assert set(meanwhile) == {200}
        assert asked.result(60).status_code == 422


def test_a_full_queue_estimates_when_to_come_back(scripted: Callable[..., Any]) -> None:
    app = scripted(stage.parts.Parts(), max_queue=2, batch_size=1)
    with ThreadPoolExecutor() as pool, Gate() as gate, app as client:
        assert client.post("/basic_generate", json={"prompt": "a step, for its length"}).status_code == 200
        held = pool.submit(events, client, f"hold {gate.port}", max_new_tokens=10)
        gate.wait()
        waiting = pool.submit(client.post, "/generate", json={"prompts": ["a", "b"], "max_new_tokens": 5})
        wait_for(client, queued=2)
        refused = client.post("/generate_stream", json={"prompt": "one too many"})
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "20"  # 10 + 5 + 5 tokens at the script's one second
        assert "2 of 2" in refused.json()["error"]["message"]
        gate.open_for_good()
        held.result(30)
        assert waiting.result(30).status_code == 200


def test_a_failing_prompt_of_many_is_named(scripted: Callable[..., Any]) -> None:
    with scripted(stage.parts.Parts()) as client:
        failed = client.post("/generate", json={"prompts": ["fine", "raise"]})
        assert failed.status_code == 500
        assert failed.json()["error"]["field"] == "prompts[1]"
        wait_for(client, running=0, queued=0)


def test_closing_mid_stream_is_an_error_event(scripted: Callable[..., Any]) -> None:
    said: list[Any] = []
    with Gate() as gate, ThreadPoolExecutor() as pool:
        parts = stage.parts.Parts(worker="tests.stage_03.scripted:Worker")
        app = stage.server.create_app(stage.settings.Settings(), parts)
        with serving(app) as client:
            streaming = pool.submit(events, client, f"hold {gate.port}")
            gate.wait()
            threading.Thread(target=app.state.engine.close).start()
            said = streaming.result(30)
    assert said[-1].event == "error"
    assert said[-1].json()["message"] == "the server is closing"
