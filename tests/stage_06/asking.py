"""How the tests of this stage ask: streams read by an off-the-shelf client, and clients that hang up."""

import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
from httpx_sse import connect_sse


def events(client: httpx.Client, model_id: str, prompt: str, **body: Any) -> list[Any]:
    """All events of one stream."""
    body = {"model_id": model_id, "prompt": prompt, "temperature": 0, "max_new_tokens": 100, **body}
    with connect_sse(client, "POST", "/generate_stream", json=body) as source:
        if not source.response.is_success:
            source.response.read()
            raise AssertionError(source.response.text)
        return list(source.iter_sse())


def text(said: list[Any]) -> str:
    return "".join(event.json().get("token", "") for event in said if event.data != "[DONE]")


def ends_well(said: list[Any]) -> bool:
    return bool(said) and said[-1].data == "[DONE]" and all(event.event != "error" for event in said)


def predict(client: httpx.Client, model_id: str, input_data: Any = "hello", **more: Any) -> httpx.Response:
    return client.post("/predict", json={"model_id": model_id, "input_data": input_data}, **more)


def wait_for(client: httpx.Client, **counters: int) -> dict[str, Any]:
    """`/stats` once its counters have these values; the requests themselves take the time."""
    stats: dict[str, Any] = {}
    for _ in range(5_000):
        stats = client.get("/stats").json()
        if all(stats[name] == value for name, value in counters.items()):
            return stats
    raise AssertionError(f"never saw {counters}: {stats}")


def send_and_hang_up(client: httpx.Client, model_id: str, prompt: str, until: Callable[[], object]) -> None:
    """Ask for a stream, wait for something, and close the connection."""
    body = json.dumps({"model_id": model_id, "prompt": prompt, "max_new_tokens": 512}).encode()
    head = f"POST /generate_stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        until()
