"""Many requests of all kinds to a server with many models: scripted ones, so that some fail to load, and hang-ups.

For the stages that only predict. Shares with them what a soak must find at its end: nothing lost, and nothing left.
"""

import asyncio
import gc
import json
import operator
import os
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from anyio.to_thread import current_default_thread_limiter

from tests.serving import Stage, eventually, serving, wait_for

REQUESTS = int(os.environ.get("SOAK", "300"))
AT_ONCE = 12
GOOD = ("a", "b", "c")
KINDS = {
    "one": 6,
    "several": 3,
    "leaver": 3,
    "broken": 1,  # fails to load
    "unusable": 1,  # fails its check
    "odd": 1,  # has no such framework
    "raise": 1,  # the model raises
    "refuse": 1,  # the input is refused
    "nobody": 1,  # there is no such model
}


def soak(stage: Stage, script: Any, folder: Path) -> None:
    """Two rounds against the app in this process, the first for warming up; then count."""
    names = [*GOOD, "unusable", "broken"]
    common = {"type": "any", "version": "1", "description": ""}
    models = [{"id": name, "name": name, "framework": "scripted", **common} for name in names]
    models.append({"id": "odd", "name": "odd", "framework": "abacus", **common})
    (folder / "models.json").write_text(json.dumps({"models": models}))
    parts = stage.parts.Parts()
    parts = replace(parts, workers={**parts.workers, "scripted": script.worker})
    app = stage.server.create_app(stage.settings.Settings(models=folder), parts)
    with_one_helper(app)
    with serving(app) as client:
        url = str(client.base_url)
        asyncio.run(everybody(url, random.Random(1)))  # pools of threads have their size
        have_two(client)
        before, counted_before = held(), counted(client)
        outcomes = Counter(asyncio.run(everybody(url, random.Random(2))))
        assert outcomes.keys() == {"completed", "refused", "failed", "left"}
        grown = counted(client)
        grown.subtract(counted_before)
        assert (grown["refused"], grown["failed"]) == (outcomes["refused"], outcomes["failed"])
        # who left early enough was never read, and who left late was answered
        assert 0 <= grown["completed"] + grown["hung_up"] - outcomes["completed"] <= outcomes["left"]
        have_two(client)
        eventually(lambda: all(map(operator.le, held(), before)), "as few threads and descriptors as before")
        stats, loaded = client.get("/stats").json(), client.get("/models").json()["loaded"]
        assert stats["resident"] == script.in_memory.total() == len(loaded) == 2
        assert stats["loads"] - stats["evictions"] == 2
        assert all(model["calls"] == model.get("waiting", 0) == 0 for model in loaded)
    assert script.most <= 2
    assert script.in_memory.total() == 0
    assert script.asked_when_freed == []


def with_one_helper(app: Any) -> None:
    """Give an app's loop pools of one thread: a pool that still grows would look like a leak."""
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def wrapped(app: Any) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        current_default_thread_limiter().total_tokens = 1
        async with lifespan(app):
            yield

    app.router.lifespan_context = wrapped


async def everybody(url: str, chance: random.Random) -> list[str]:
    """All outcomes: "completed", "refused", "failed" or "left"; anything else is a finding."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(client: httpx.AsyncClient) -> str:
        async with turn:
            return await ask(client, chance)

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await asyncio.gather(*(one(client) for _ in range(REQUESTS)))


async def ask(client: httpx.AsyncClient, chance: random.Random) -> str:
    """One request of a random kind."""
    [kind] = chance.choices([*KINDS], [*KINDS.values()])
    name = kind if kind in ("broken", "unusable", "odd", "nobody") else chance.choice(GOOD)
    item = kind if kind in ("raise", "refuse") else "x"
    count = chance.randint(2, 9) if kind == "several" else 1
    body = {"model_id": name, "input_data": [item] * count}
    if kind == "leaver":
        await leave(client.base_url, json.dumps(body).encode(), chance.randint(0, 5))
        return "left"
    answer = await client.post("/predict", json=body)
    expected = {"refuse": 422, "nobody": 404, "one": 200, "several": 200}.get(kind, 500)
    if answer.status_code != expected:
        return f"{kind}: {answer.status_code} {answer.text}"
    if expected != 200:
        return "failed" if expected == 500 else "refused"
    labels = [prediction["label"].partition(" ")[0] for prediction in answer.json()["predictions"]]
    return "completed" if labels == [name] * count else f"wrong: {labels}"


async def leave(url: httpx.URL, body: bytes, patience: int) -> None:
    """Ask, let others have their turn a few times, and close the connection."""
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    for _ in range(patience):
        await asyncio.sleep(0)
    writer.close()
    await writer.wait_closed()


def counted(client: httpx.Client) -> "Counter[str]":
    """The counters of requests, once nobody waits."""
    return Counter(wait_for(client, queued=0)["requests"])


def have_two(client: httpx.Client) -> None:
    """Have the same two models in memory."""
    wait_for(client, queued=0)
    for name in GOOD[:2]:
        assert client.post("/predict", json={"model_id": name, "input_data": "x"}).status_code == 200


def held() -> tuple[int, int]:
    """Threads and file descriptors of this process."""
    gc.collect()
    return threading.active_count(), len(list(Path("/dev/fd").iterdir()))
