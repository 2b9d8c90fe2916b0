"""Many requests of all kinds, hang-ups among them, against the whole server in this process; then: is anything left?

The short version runs by default. `make soak` is the long one.
"""

import asyncio
import json
import multiprocessing
import os
import random
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.to_thread import current_default_thread_limiter

from tests.serving import Stage, eventually, serving, wait_for

stage = Stage("03_continuous_streaming")
REQUESTS = int(os.environ.get("SOAK", "200"))
WARM_UP = 60
AT_ONCE = 24


def counting(a: int, b: int) -> tuple[str, str]:
    return f"Count from {a} to {b}:", "".join(f" {number}" for number in range(a, b + 1))


async def ask(client: httpx.AsyncClient, chance: random.Random) -> str:
    """One request of a random kind: "right", "left" or "refused"; anything else is a finding."""
    first = chance.randint(0, 60)
    prompt, expected = counting(first, first + chance.randint(0, 25))
    kind = chance.choice(["stream", "stream", "leaver", "leaver", "blocking", "many", "bad"])
    if kind == "bad":
        answer = await client.post("/generate_stream", json={"prompt": prompt, "max_new_tokens": 9999})
        return "refused" if answer.status_code == 422 else f"{answer.status_code} for a bad request"
    if kind == "blocking":
        answer = await client.post("/basic_generate", json={"prompt": prompt})
        return "right" if answer.json() == {"generated_text": expected} else f"wrong: {answer.text}"
    if kind == "many":
        answer = await client.post("/generate", json={"prompts": [prompt, prompt]})
        return "right" if answer.json() == {"generated_texts": [expected] * 2} else f"wrong: {answer.text}"
    said, patience = "", chance.randint(0, 20)
    body = {"prompt": prompt, "temperature": 0, "max_new_tokens": 128}
    async with client.stream("POST", "/generate_stream", json=body) as answer:
        async for line in answer.aiter_lines():
            if kind == "leaver" and len(said) >= patience:
                return "left"
            if line.startswith("data: {"):
                said += json.loads(line[6:]).get("token", "")
    return "right" if said == expected else f"wrong: {said}"


async def soak(url: str, chance: random.Random, requests: int) -> list[str]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(client: httpx.AsyncClient) -> str:
        async with turn:
            return await ask(client, chance)

    async with httpx.AsyncClient(base_url=url, timeout=90, limits=httpx.Limits(max_connections=AT_ONCE)) as client:
        return await asyncio.gather(*(one(client) for _ in range(requests)))


def app_with_one_helper() -> Any:
    """The app, on an event loop with one helper thread of asyncio's and one of anyio's, which runs error handlers.

    A pool that still grows would look like a leak.
    """
    app = stage.server.create_app(stage.settings.Settings())
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def with_one_helper(app: Any) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        current_default_thread_limiter().total_tokens = 1
        async with lifespan(app):
            yield

    app.router.lifespan_context = with_one_helper
    return app


def held() -> dict[str, int]:
    """Threads and open files of this process, and the open files of its child where they can be seen."""
    [child] = multiprocessing.active_children()
    files = {"ours": Path("/dev/fd"), "the child's": Path(f"/proc/{child.pid}/fd")}
    return {"threads": threading.active_count()} | {
        whose: len(list(there.iterdir())) for whose, there in files.items() if there.exists()
    }


@pytest.mark.timeout(120 + REQUESTS / 5)
def test_nothing_is_lost_and_nothing_is_left() -> None:
    with serving(app_with_one_helper()) as client:
        asyncio.run(soak(str(client.base_url), random.Random(1), WARM_UP))
        wait_for(client, running=0, queued=0)
        before = held()
        outcomes = asyncio.run(soak(str(client.base_url), random.Random(2), REQUESTS))
        assert {outcome for outcome in outcomes if outcome not in ("right", "left", "refused")} == set()
        wait_for(client, running=0, queued=0)
        for what, number in before.items():
            eventually(lambda what=what, number=number: held()[what] <= number, f"no more than {number} {what}")
