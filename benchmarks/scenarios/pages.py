"""Why pages: how much of a KV cache holds tokens, by how room in it is given out. No server, no model, no clock.

A made-up crowd always waits in line for the same memory. Contiguous reservations are first-fit on a line of slots: as
long as the context allows, or (if somebody knew) about or exactly as long as the answer will be. Blocks are stage 07's
own `KVCacheManager`. The kinds of waste are those of the vLLM paper (Kwon et al., SOSP 2023); the lengths are drawn.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from statistics import fmean
from typing import Any, Protocol

from benchmarks.sheet import Sheet

from .scenario import Result, Scenario

CONTEXT = 2048
MEMORY = 16 * CONTEXT
"""slots, one a token"""
BLOCK = 16
STEPS, WARM_UP = 3000, 1000
"""of `STEPS`, the first are not counted: everybody has just come"""
SEED = 7
PROMPT, ANSWER = (4.6, 1.0), (5.3, 1.0)
"""lognormal, as mu and sigma: medians of 100 and 200 tokens, and long tails"""


@dataclass(eq=False)
class Asked:
    """A request: `tokens` are in the cache, `length` will be at its end."""

    prompt: int
    length: int
    tokens: int = 0


class Memory(Protocol):
    """Where tokens are kept. `reserved` slots are somebody's. `grow` makes room for `tokens`; False if it cannot."""

    @property
    def reserved(self) -> int: ...
    def admit(self, request: Asked) -> bool: ...
    def grow(self, request: Asked) -> bool: ...
    def end(self, request: Asked) -> None: ...


class Line:
    """Slots in a row. A reservation is contiguous, and lies in the first gap that it fits into."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.held: dict[Any, tuple[int, int]] = {}

    def gaps(self) -> list[tuple[int, int]]:
        """Start and length of what is free, from left to right."""
        found, start = [], 0
        for begin, size in [*sorted(self.held.values()), (self.slots, 0)]:
            if begin > start:
                found.append((start, begin - start))
            start = begin + size
        return found

    def reserve(self, who: Any, size: int) -> bool:
        """Whether there was a gap for it."""
        start = next((start for start, length in self.gaps() if length >= size), None)
        if start is not None:
            self.held[who] = start, size
        return start is not None

    def release(self, who: Any) -> None:
        """Leave a gap."""
        del self.held[who]


class Contiguous:
    """Each request has one reservation, from its first step to its last, as large as `size` says."""

    def __init__(self, size: Callable[[Asked], int], slots: int = MEMORY) -> None:
        self.size = size
        self.line = Line(slots)
        self.stuck: dict[str, int] | None = None
        """the last refusal: what was asked for, what was free in all, in how many gaps, and the largest of these"""

    @property
    def reserved(self) -> int:
        return sum(size for _, size in self.line.held.values())

    def admit(self, request: Asked) -> bool:
        if self.line.reserve(request, self.size(request)):
            return True
        gaps = [length for _, length in self.line.gaps()]
        told = {"free": sum(gaps), "gaps": len(gaps), "largest": max(gaps, default=0)}
        self.stuck = {"asked": self.size(request), **told}
        return False

    def grow(self, request: Asked) -> bool:
        return True

    def end(self, request: Asked) -> None:
        self.line.release(request)


class Blocks:
    """Stage 07's block tables. A block is taken when there is a token for it."""

    def __init__(self, slots: int = MEMORY) -> None:
        stage = "stages.07_paged_attention"
        pool = import_module(f"{stage}.block_pool").BlockPool(slots // BLOCK)
        self.manager = import_module(f"{stage}.kv_cache_manager").KVCacheManager(pool, BLOCK, False)
        self.sampling = import_module(f"{stage}.messages").SamplingParams(CONTEXT)
        self.request = import_module(f"{stage}.request").Request
        self.tables: dict[Asked, Any] = {}
        self.again = 0
        """tokens that are computed again, since a request gave up its place"""

    @property
    def reserved(self) -> int:
        return self.manager.pool.used * BLOCK

    def admit(self, request: Asked) -> bool:
        asked = self.request("", [0] * request.tokens, request.prompt, self.sampling, 0.0)
        if self.manager.admit(asked, len(self.tables) + 1 if self.tables else 0):  # the scheduler's watermark
            self.tables[request] = asked
        return request in self.tables

    def grow(self, request: Asked) -> bool:
        return self.manager.grow(self.tables[request], request.tokens)

    def end(self, request: Asked) -> None:
        self.again += request.tokens if request.tokens < request.length else 0
        self.manager.free(self.tables.pop(request))

    def waste(self) -> list[int]:
        """Slots that each request has and does not use."""
        return [len(table.block_ids) * BLOCK - request.tokens for request, table in self.tables.items()]


def full_length(request: Asked) -> int:
    """All that the context allows: nobody knows how long an answer will be."""
    return CONTEXT


def power_of_two(request: Asked) -> int:
    """The answer's length rounded up to a power of two, had somebody guessed it so well."""
    return request.prompt + (1 << (request.length - request.prompt - 1).bit_length())


def exact(request: Asked) -> int:
    """The very length, known beforehand by an oracle."""
    return request.length


WAYS: dict[str, Callable[[], Contiguous | Blocks]] = {
    "full length": lambda: Contiguous(full_length),
    "power of two": lambda: Contiguous(power_of_two),
    "exact length": lambda: Contiguous(exact),
    "blocks": Blocks,
}


def crowd(seed: int = SEED) -> Iterator[Asked]:
    """Requests without end, the same for every way."""
    draw = random.Random(seed)
    while True:
        prompt = max(1, min(CONTEXT // 2, round(draw.lognormvariate(*PROMPT))))
        answer = max(1, min(CONTEXT - prompt, round(draw.lognormvariate(*ANSWER))))
        yield Asked(prompt, prompt + answer, prompt)


def steps(memory: Memory, line: Iterator[Asked], count: int) -> Iterator[list[Asked]]:
    """Who runs at each step, with a token more each time. First come, first served, until the next one is refused.

    For whom there is no token's room, the newest gives up its place and is next in line, as in stage 07.
    """
    running: list[Asked] = []
    waiting: deque[Asked] = deque()
    for _ in range(count):
        for done in [request for request in running if request.tokens >= request.length]:
            running.remove(done)
            memory.end(done)
        for request in [*running]:
            if request in running:
                request.tokens += 1
                while request in running and not memory.grow(request):
                    waiting.appendleft(newest := running.pop())
                    if newest is request:
                        request.tokens -= 1
                    memory.end(newest)
        while memory.admit(following := waiting.popleft() if waiting else next(line)):
            running.append(following)
        waiting.appendleft(following)
        yield running


def measure(way: str, count: int = STEPS, warm_up: int = WARM_UP) -> dict[str, Any]:
    """One way to give out the memory: means over the steps after the warm-up."""
    memory = WAYS[way]()
    seen: list[tuple[int, int, int]] = []
    waste: list[int] = []
    stuck: list[dict[str, int]] = []
    everybody = 0
    for number, running in enumerate(steps(memory, crowd(), count)):
        everybody += len(running)
        if number >= warm_up:
            seen.append((len(running), sum(request.tokens for request in running), memory.reserved))
            if isinstance(memory, Blocks):
                waste += memory.waste()
            elif memory.stuck and memory.stuck["free"] >= memory.stuck["asked"]:
                stuck.append(memory.stuck)
    at_once, tokens, reserved = (fmean(column) for column in zip(*seen, strict=True))
    return {
        "way": way,
        "at_once": at_once,
        "of_reserved": tokens / reserved,
        "of_memory": tokens / MEMORY,
        "stuck": len(stuck) / len(seen),
        "gap": max(stuck, key=lambda one: one["free"] - one["asked"], default=None),  # the plainest moment
        "waste_each": fmean(waste) if waste else (reserved - tokens) / at_once,
        "waste_most": max(waste, default=None),
        "again": memory.again / everybody if isinstance(memory, Blocks) else 0.0,
    }


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """All ways, with the same crowd; the seconds play no role."""
    cells: list[dict[str, Any]] = []
    for way in WAYS:
        tell(way)
        cells.append(measure(way))
    return {"context": CONTEXT, "memory": MEMORY, "block": BLOCK, "cells": cells}


HEADINGS = (
    "room is given out as",
    "requests at once",
    "of it holds tokens",
    "of all memory holds tokens",
    "empty, a request",
    "kept out by gaps alone",
    "computed again",
)


def table(result: Result) -> Sheet:
    """One row a way."""
    rows = [
        (
            cell["way"],
            f"{cell['at_once']:.1f}",
            f"{cell['of_reserved']:.1%}",
            f"{cell['of_memory']:.1%}",
            f"{cell['waste_each']:,.{0 if cell['waste_each'] > 100 else 1}f} tokens",
            f"{cell['stuck']:.0%} of steps",
            f"{cell['again']:.0%}",
        )
        for cell in result["cells"]
    ]
    return Sheet(f"A crowd in {result['memory']:,} slots, context {result['context']:,}", HEADINGS, rows, words=1)


SCENARIO = Scenario("pages", "why pages: how much of a cache holds tokens", "no model", 1.0, run, table)
