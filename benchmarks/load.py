"""The load generator: sends prompts to a server over HTTP, in a closed or an open loop, and checks every answer.

A closed loop has N users who each wait for an answer before asking again; an open loop sends when its schedule says
so, whether or not the server keeps up. Both stop by themselves: no request starts after the window, and each one has a
time-out. Only loopback addresses are spoken to. Time is the event loop's, so tests run it on a virtual one.
"""

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import httpx

from .prompts import Prompt
from .records import OK, WRONG, Record, Run
from .sse import SseParser

PAUSE = 0.1
"""seconds that a user waits after an error, so that a server that refuses is not hammered"""

Send = Callable[[Prompt, float], Coroutine[Any, Any, Record]]
"""sends a prompt that was scheduled at a time, and never raises"""


class Failed(Exception):
    """A request that did not succeed: its outcome, and what there is to say about it."""

    def __init__(self, outcome: str, detail: str = "") -> None:
        super().__init__(f"{outcome} {detail}".strip())
        self.outcome = outcome
        self.detail = detail


class Client:
    """Talks to one server. `path` is its lane: "/basic_generate" answers at once; "/generate_stream" and OpenAI's
    "/v1/completions" stream. `more` is what each body has besides, such as a model's id."""

    def __init__(
        self, url: str, path: str = "/basic_generate", timeout: float = 60.0, more: Mapping[str, Any] | None = None
    ) -> None:
        if httpx.URL(url).host not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError(f"{url} is not on this machine; the load generator speaks to loopback addresses only")
        self.path = path
        self.more = dict(more or {})
        self.timeout = timeout
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits, trust_env=False)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(self, prompt: Prompt, scheduled: float) -> Record:
        """Ask once and judge the answer. Whatever goes wrong becomes the record's outcome."""
        clock, pieces, detail = asyncio.get_running_loop().time, [], ""
        try:
            async with asyncio.timeout(self.timeout):
                text = await (
                    self._ask(prompt) if self.path.endswith("/basic_generate") else self._stream(prompt, pieces)
                )
            outcome = OK if prompt.answer in (None, text) else WRONG
            if outcome == WRONG:
                detail = f"{prompt.text!r} -> {text!r}"
        except Failed as exc:
            outcome, detail = exc.outcome, exc.detail
        except (TimeoutError, httpx.TimeoutException):
            outcome = "timeout"
        except httpx.TransportError:
            outcome = "connection"
        except (ValueError, KeyError, TypeError):
            outcome = "malformed"
        return Record(scheduled, clock(), outcome, prompt.tokens if outcome == OK else 0, tuple(pieces), detail)

    async def get(self, path: str, **query: float) -> Any:
        """The JSON at a path, or None if the server has no such thing."""
        response = await self._http.get(path, params=query)
        return response.json() if response.status_code == 200 else None

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that comes back. Raises `Failed`."""
        response = await self._http.post(path, json=body)
        if response.status_code != 200:
            raise Failed(str(response.status_code))
        return response.json()

    async def _ask(self, prompt: Prompt) -> str:
        return (await self.post(self.path, prompt.body() | self.more))["generated_text"]

    def _streaming_body(self, prompt: Prompt) -> dict[str, Any]:
        body = prompt.body() | self.more | {"temperature": 0}
        if self.path.endswith("/v1/completions"):
            body["max_tokens"] = body.pop("max_new_tokens")
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    async def _stream(self, prompt: Prompt, pieces: list[float]) -> str:
        clock, parser, text = asyncio.get_running_loop().time, SseParser(), ""
        async with self._http.stream("POST", self.path, json=self._streaming_body(prompt)) as response:
            if response.status_code != 200:
                raise Failed(str(response.status_code))
            async for line in response.aiter_lines():
                event = parser.feed(line)
                if event and event.name == "error":
                    raise Failed("stream error")
                if event and event.data == "[DONE]":
                    return text
                data = json.loads(event.data) if event else {}
                if "error" in data:
                    raise Failed("stream error")
                if piece := data.get("token") or "".join(choice["text"] for choice in data.get("choices", ())):
                    pieces.append(clock())
                    text += piece
                if "usage" in data and (tokens := data["usage"]["completion_tokens"]) != prompt.tokens:
                    raise Failed(WRONG, f"{prompt.text!r} -> {tokens} tokens, not {prompt.tokens}")
        raise Failed("cut off")


async def closed_loop(
    send: Send, prompts: Iterator[Prompt], users: int, seconds: float, requests: int, warmup: float = 0.0
) -> Run:
    """`users` people ask one after the other, for `seconds` or until `requests` were sent, whichever is sooner.

    The window opens after `warmup` more seconds: when all begin at once, a server that works on all of them at once
    finishes nothing at first, and would look slower than one that takes them in turn.
    """
    clock, records, sent = asyncio.get_running_loop().time, [], 0
    began = clock() + warmup

    async def user() -> None:
        nonlocal sent
        while sent < requests and clock() < began + seconds:
            sent += 1
            records.append(await send(next(prompts), clock()))
            if records[-1].outcome not in (OK, WRONG):
                await asyncio.sleep(PAUSE)

    async with asyncio.TaskGroup() as group:
        for _ in range(users):
            group.create_task(user())
    last = max((record.finished for record in records), default=began)
    return Run(records, began, max(0.0, min(seconds, last - began)))


def poisson_arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Times in [0, seconds) at which requests arrive, `rate` a second on average, independent of each other."""
    draw, times, now = random.Random(seed), [], 0.0
    while (now := now + draw.expovariate(rate)) < seconds:
        times.append(now)
    return times


async def open_loop(send: Send, prompts: Iterator[Prompt], arrivals: Sequence[float], seconds: float) -> Run:
    """Send at each arrival time, however many answers are outstanding. A late sender is charged to the latency."""
    clock = asyncio.get_running_loop().time
    began, tasks = clock(), []
    async with asyncio.TaskGroup() as group:
        for arrival in arrivals:
            await asyncio.sleep(began + arrival - clock())
            tasks.append(group.create_task(send(next(prompts), began + arrival)))
    return Run([task.result() for task in tasks], began, seconds)
