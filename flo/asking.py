"""The client's side: one request to a stage, streamed or not, and what came back.

Knows the stages' HTTP interface and nothing of what is behind it.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx

from .errors import UserError

PREFERRED = ("/generate_stream", "/basic_generate", "/predict")
"""where to send a prompt, the most telling route first"""


SECONDS = 300.0
"""without a byte from the server; a whole line may be waiting ahead of a request"""


@dataclass(frozen=True)
class Ask:
    """A request. With `expected`, only that text is a right answer; without, any text is."""

    path: str
    body: dict[str, Any]
    expected: str | None = None


@dataclass(frozen=True)
class Reply:
    """An answer as its caller saw it. Times are in seconds since the request was sent."""

    status: int
    """of HTTP; 0 if none came back"""
    text: str
    seconds: float
    first: float | None = None
    """until the first piece of text, where the answer is streamed"""
    error: str = ""

    def answers(self, question: Ask) -> bool:
        """Whether this is a right answer to the question."""
        if self.error:
            return False
        return self.text == question.expected if question.expected is not None else bool(self.text)


def ask(client: httpx.Client, question: Ask) -> Reply:
    """Send a request and wait for all of its answer. Never raises for what the server does."""
    began = time.monotonic()
    try:
        with client.stream("POST", question.path, json=question.body, timeout=SECONDS) as response:
            if response.is_success and response.headers["content-type"].startswith("text/event-stream"):
                return _read_stream(response.iter_lines(), response.status_code, began)
            content = json.loads(response.read())
    except (httpx.HTTPError, json.JSONDecodeError, RuntimeError) as exc:  # RuntimeError: the client was closed
        return Reply(0, "", time.monotonic() - began, error=f"no answer: {exc}")
    seconds = time.monotonic() - began
    if response.is_success:
        return Reply(response.status_code, text_of(content), seconds)
    detail = content.get("error", content) if isinstance(content, dict) else content
    message = detail.get("message", detail) if isinstance(detail, dict) else detail
    return Reply(response.status_code, "", seconds, error=str(message))


def text_of(content: Any) -> str:
    """The text in the body of an answer; the whole body where it has no text."""
    if isinstance(content, dict) and isinstance(content.get("generated_text"), str):
        return content["generated_text"]
    if isinstance(content, dict) and isinstance(content.get("generated_texts"), list):
        return "\n".join(content["generated_texts"])
    if isinstance(content, dict) and isinstance(content.get("predictions"), list):
        return "\n".join(prediction["label"] for prediction in content["predictions"])
    if isinstance(content, dict) and isinstance(content.get("choices"), list):
        return "\n".join(piece_of({"choices": [choice]}) for choice in content["choices"])
    return json.dumps(content, ensure_ascii=False)


def piece_of(frame: dict[str, Any]) -> str:
    """The text in a frame of a stream: ours, or a chunk of a completion or a chat as OpenAI has them."""
    choice = next(iter(frame.get("choices", ())), {})
    message = choice.get("delta") or choice.get("message") or {}
    return frame.get("token") or choice.get("text") or message.get("content") or ""


def _read_stream(lines: Iterable[str], status: int, began: float) -> Reply:
    """Server-sent events: pieces of text, perhaps an `error` event, then [DONE]."""
    pieces: list[str] = []
    first: float | None = None
    event = ""
    for line in lines:
        if line.startswith("event:"):
            event = line[6:].strip()
        elif not line:
            event = ""
        elif line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
            if event == "error" or "error" in json.loads(data):
                return Reply(status, "".join(pieces), time.monotonic() - began, first, error=data)
            piece = piece_of(json.loads(data))
            first = first or time.monotonic() - began if piece else first
            pieces.append(piece)
    return Reply(status, "".join(pieces), time.monotonic() - began, first)


def pick_ask(openapi: dict[str, Any], prompt: str) -> Ask:
    """The request that a prompt makes at a server, chosen and filled in from its `/openapi.json`.

    Fields that the route requires beside the prompt get the example or default that their schema gives.
    """
    routes = [path for path in PREFERRED if "post" in openapi["paths"].get(path, {})]
    for path in routes:
        schema = _body_schema(openapi, path)
        fields = schema.get("properties", {})
        goal = next((name for name in ("prompt", "input_data") if name in fields), None)
        if goal:
            required = [name for name in schema.get("required", ()) if name != goal]
            return Ask(path, {name: _example(fields[name]) for name in required} | {goal: prompt})
    raise UserError(f"none of {', '.join(PREFERRED)} takes a prompt")


def _body_schema(openapi: dict[str, Any], path: str) -> dict[str, Any]:
    schema = openapi["paths"][path]["post"].get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = schema.get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    return openapi["components"]["schemas"][name] if name else schema


def _example(field: dict[str, Any]) -> Any:
    return next(iter(field.get("examples", ())), field.get("default"))
