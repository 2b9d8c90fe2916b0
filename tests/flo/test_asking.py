"""What comes back from a stage, in the stages' own form and in OpenAI's."""

import json
from typing import Any

import httpx
import pytest

from flo.asking import Ask, Reply, ask, text_of


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"generated_text": "a"}, "a"),
        ({"generated_texts": ["a", "b"]}, "a\nb"),
        ({"choices": [{"text": "a"}, {"text": "b"}]}, "a\nb"),
        ({"choices": [{"message": {"role": "assistant", "content": "a"}}]}, "a"),
        ({"other": 1}, '{"other": 1}'),
    ],
)
def test_the_text_of_an_answer(content: Any, text: str) -> None:
    assert text_of(content) == text


def streamed(*frames: Any) -> Reply:
    body = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=body, headers=headers))
    with httpx.Client(transport=transport, base_url="http://stage") as client:
        return ask(client, Ask("/", {}))


def test_the_text_of_a_stream() -> None:
    assert streamed({"token": "a"}, {"token": "b"}, {"finish_reason": "stop"}).text == "ab"
    assert streamed({"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}]}, {"choices": []}).text == "ab"
    assert (
        streamed({"choices": [{"delta": {"role": "assistant"}}]}, {"choices": [{"delta": {"content": "a"}}]}).text
        == "a"
    )


def test_an_error_in_a_stream() -> None:
    reply = streamed({"choices": [{"text": "a"}]}, {"error": {"message": "lost"}})
    assert (reply.text, "lost" in reply.error) == ("a", True)
