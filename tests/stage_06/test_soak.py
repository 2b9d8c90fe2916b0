"""Many requests of all kinds, hang-ups and failing loads among them; then: do the counters add up, is anything left?

The short version runs by default. `SOAK=2000 pytest tests/stage_06/test_soak.py` is the long one.
"""

import asyncio
import json
import operator
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from tests.serving import Stage, eventually
from tests.soaking import held, with_one_helper
from tests.stage_06.asking import predict, wait_for
from tests.stage_06.scripted import Script

stage = Stage("06_pinned_streams")
REQUESTS = int(os.environ.get("SOAK", "300"))
AT_ONCE = 12


async def ask(client: httpx.AsyncClient, chance: random.Random) -> str:
    """One request of a random kind: "completed", "refused", "failed", "hung_up", or a finding."""
    kind = chance.choice(["stream", "stream", "leaver", "predict", "predict", "broken", "bad"])
    if kind in ("predict", "broken"):
        name = chance.choice("ab") if kind == "predict" else "broken"
        answer = await client.post("/predict", json={"model_id": name, "input_data": "x"})
        if answer.status_code == 200:
            return "completed" if answer.json()["predictions"][0]["label"].startswith(name) else answer.text
        return {503: "refused", 500: "failed" if kind == "broken" else answer.text}.get(answer.status_code, answer.text)
    prompt = "raise" if kind == "bad" else "x" * chance.randint(1, 40) + "y"
    body = {"model_id": chance.choice("st"), "prompt": prompt, "temperature": 0, "max_new_tokens": 60}
    said, patience = "", chance.randint(0, 10)
    async with client.stream("POST", "/generate_stream", json=body) as answer:
        if answer.status_code != 200:
            await answer.aread()
            return "refused" if answer.status_code == 503 and answer.headers["Retry-After"] else answer.text
        async for line in answer.aiter_lines():
            if kind == "leaver" and len(said) >= patience:
                return "left"
            if line == "event: error":
                return "failed" if kind == "bad" else "an error"
            if line.startswith("data: {"):
                said += json.loads(line[6:]).get("token", "")
    return "completed" if said == prompt else f"wrong: {said}"


def test_nothing_is_lost_and_nothing_is_left(scripted: Callable[..., Any], script: Script) -> None:
    async def soak(url: str, seed: int) -> list[str]:
        chance, turn = random.Random(seed), asyncio.Semaphore(AT_ONCE)

        async def one(client: httpx.AsyncClient) -> str:
            async with turn:
                return await ask(client, chance)

        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            return await asyncio.gather(*(one(client) for _ in range(REQUESTS)))

    def settled(client: httpx.Client) -> dict[str, Any]:
        """The counters when nobody waits any more, and two models that predict are in memory."""
        for name in "ab":
            wait_for(client, pins=0, queued=0, streams_running=0, streams_waiting=0)
            assert predict(client, name).status_code == 200
        return wait_for(client, pins=0, queued=0)

    with scripted(stage.parts.Parts(), prepare=with_one_helper) as client:
        url = str(client.base_url)
        outcomes = Counter(asyncio.run(soak(url, 5)))  # pools of threads have their size
        settled(client)
        before = held()
        outcomes.update(asyncio.run(soak(url, 6)))
        assert outcomes.keys() <= {"completed", "refused", "failed", "left"}
        assert outcomes["completed"] and outcomes["refused"] and outcomes["failed"] and outcomes["left"]
        stats = settled(client)
        eventually(lambda: all(map(operator.le, held(), before)), "as few threads and descriptors as before")
        outcomes["completed"] += 4  # those that settled it
        counted = stats["requests"]
        assert counted["refused"] == outcomes["refused"] and counted["failed"] == outcomes["failed"]
        assert counted["completed"] + counted["hung_up"] == outcomes["completed"] + outcomes["left"]
        assert counted["completed"] >= outcomes["completed"]  # some who left had been sent all there was
        assert stats["resident"] <= 2 and script.most <= 2
        assert stats["refused_busy"] == counted["refused"]
        assert all(model["pins"] == model["waiting"] == 0 for model in client.get("/models").json()["loaded"])
    assert script.in_memory.total() == 0
    assert script.asked_when_freed == []
