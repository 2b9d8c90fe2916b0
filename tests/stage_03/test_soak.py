"""Many requests of all kinds, hang-ups among them, against the whole server in this process; then: is anything left?

The short version runs by default. `SOAK=2000 pytest tests/stage_03/test_soak.py` is the long one.
"""

import asyncio
import json
import operator
import os
import random
import threading
from pathlib import Path

import httpx

from tests.serving import Stage, serving

stage = Stage("03_continuous_streaming")
REQUESTS = int(os.environ.get("SOAK", "200"))
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


async def soak(url: str, chance: random.Random) -> list[str]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(client: httpx.AsyncClient) -> str:
        async with turn:
            return await ask(client, chance)

    async with httpx.AsyncClient(base_url=url, timeout=90, limits=httpx.Limits(max_connections=AT_ONCE)) as client:
        return await asyncio.gather(*(one(client) for _ in range(REQUESTS)))


def held() -> tuple[int, int]:
    """Threads and file descriptors of this process."""
    return threading.active_count(), len(list(Path("/dev/fd").iterdir()))


def test_nothing_is_lost_and_nothing_is_left() -> None:
    with serving(stage.server.create_app(stage.settings.Settings())) as client:
        asyncio.run(soak(str(client.base_url), random.Random(1)))  # warm: pools of threads have their size
        before = held()
        outcomes = asyncio.run(soak(str(client.base_url), random.Random(2)))
        assert {outcome for outcome in outcomes if outcome not in ("right", "left", "refused")} == set()
        stats: dict[str, int] = {}
        for _ in range(10_000):
            stats = client.get("/stats").json()
            if not stats["running"] and not stats["queued"] and all(map(operator.le, held(), before)):
                break
        assert (stats["running"], stats["queued"]) == (0, 0)
        threads, descriptors = held()
        assert threads <= before[0]
        assert descriptors <= before[1]
