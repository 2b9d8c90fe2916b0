"""What a shared prefix is worth: time to the first text of two requests that begin with the same 256 tokens.

In each round the prefix is new. The second request finds the blocks of the first in stage 07's prefix cache; a server
without that cache, asked the same, computes them again. It also says what the answers are.
"""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.load import Client
from benchmarks.prompts import Prompt
from benchmarks.records import OK, WrongAnswers
from benchmarks.sheet import Sheet, ms
from benchmarks.targets import ROOT, Target, need, running_target

from .scenario import Result, Scenario

MODEL = "smollm2"
PREFIX, REST = 256, 8
"""tokens that both have, and tokens of each alone"""
TOKENS = 4
CACHED, COMPUTED = "prefix cache", "without it"
SERVERS = {CACHED: PREFIX, COMPUTED: 0}
"""and how many tokens of the second request each must find"""


@dataclass(frozen=True)
class Ids(Prompt):
    """A prompt of token ids."""

    ids: tuple[int, ...] = ()

    def body(self) -> dict[str, Any]:
        return super().body() | {"prompt": [*self.ids]}


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Ask both servers in turn, until the time of both is up."""
    need(MODEL)
    tell("starting the servers")
    with ExitStack() as stack:
        cache = {CACHED: "--enable-prefix-caching", COMPUTED: "--no-enable-prefix-caching"}
        targets = {name: stack.enter_context(running_target("07", MODEL, cache[name])) for name in SERVERS}
        return {"cells": asyncio.run(measure(targets, seconds * len(targets), tell))}


async def measure(targets: dict[str, Target], seconds: float, tell: Callable[[str], object]) -> list[dict[str, Any]]:
    """The cells: medians over the rounds."""
    took: dict[str, list[tuple[float, float]]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(target.lanes()[-1].client()) for name, target in targets.items()
        }
        end, number = time.monotonic() + seconds, 0
        while not took or time.monotonic() < end:
            tell(f"round {number + 1}")
            pair = [await answered(clients[COMPUTED], ids) for ids in two_prompts(number)]
            for name, client in list(clients.items())[:: -1 if number % 2 else 1]:
                took[name].append(await both(name, client, pair))
            number += 1
    return [cell(name, took[name]) for name in SERVERS]


def two_prompts(seed: int) -> list[list[int]]:
    """Token ids of two prompts with the same beginning: the seed, and sentences in an order of its own."""
    from tokenizers import Tokenizer

    sentences = [*json.loads((ROOT / "models" / "glossary.json").read_text(encoding="utf-8")).values()]
    random.Random(seed).shuffle(sentences)
    text = " ".join([f"{seed}.", *sentences])
    ids = Tokenizer.from_file(str(ROOT / "models" / MODEL / "tokenizer.json")).encode(text).ids
    rests = (ids[PREFIX + place * REST : PREFIX + (place + 1) * REST] for place in range(2))
    return [[*ids[:PREFIX], *rest] for rest in rests]


async def answered(client: Client, ids: list[int]) -> Ids:
    """A prompt with the answer that a server without a prefix cache gives."""
    body = {"prompt": ids, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    text = (await client.post("/v1/completions", body))["choices"][0]["text"]
    return Ids("the prefix", TOKENS, TOKENS, text, ignore_eos=True, ids=tuple(ids))


async def both(name: str, client: Client, pair: list[Ids]) -> tuple[float, float]:
    """Seconds to the first text of the first and of the second. Raises `WrongAnswers` unless the prefix was found."""
    first, second = [], []
    for prompt, found in zip(pair, (first, second), strict=True):
        before = await client.get("/stats")
        record = await client.send(prompt, asyncio.get_running_loop().time())
        if record.outcome != OK:
            raise WrongAnswers(f"{name}: {record.outcome} {record.detail}")
        found += [record.first_text, (await client.get("/stats"))["prefix_hits"] - before["prefix_hits"]]
    if (hits := [first[1], second[1]]) != [0, SERVERS[name]]:
        raise WrongAnswers(f"{name}: the two requests found {hits} tokens of their prefix, not {[0, SERVERS[name]]}")
    return first[0], second[0]


def cell(name: str, rounds: list[tuple[float, float]]) -> dict[str, Any]:
    """One server."""
    first, second = (median(found) for found in zip(*rounds, strict=True))
    ratio = median(late / early for early, late in rounds)
    return {"target": name, "rounds": len(rounds), "first": first, "second": second, "ratio": ratio}


def table(result: Result) -> Sheet:
    """One row a server."""
    rows = [
        (cell["target"], ms(cell["first"]), ms(cell["second"]), f"{cell['ratio']:.2f}", str(cell["rounds"]))
        for cell in result["cells"]
    ]
    headings = ("stage 07", "first request", "second request", "second of first", "rounds")
    return Sheet(f"Time to the first text, with {PREFIX} tokens in common", headings, rows, words=1)


SCENARIO = Scenario(
    "prefix", "the first text of a second request with the same prefix", MODEL, 20.0, run, table, quick=False
)
