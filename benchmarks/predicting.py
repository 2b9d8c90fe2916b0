"""Asks classifiers: the samples that ship with one model, sent to `/predict`, and each answer judged.

The counterpart of `Client.send` for the stages with many models; loops, records and figures are the same.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from .load import Send
from .records import OK, WRONG, Record
from .targets import ROOT


@dataclass(frozen=True)
class Question:
    """One request body, as bytes, and the label that must come back."""

    body: bytes
    label: str


def questions(model: str) -> Iterator[Any]:
    """The samples of a model in turn, without end."""
    paths = sorted((ROOT / "models" / "samples").glob(f"{model}-*.json"))
    asked = [Question(path.read_bytes(), path.stem.partition("-")[2]) for path in paths]
    return itertools.cycle(asked)


def first_label(answer: Any) -> str:
    """The likeliest label of the first input, as stages answer."""
    return answer["predictions"][0]["label"]


@asynccontextmanager
async def predicting(
    url: str, path: str = "/predict", label: Callable[[Any], str] = first_label
) -> AsyncIterator[tuple[Send, httpx.AsyncClient]]:
    """What sends a question to `path` and judges the `label` of the answer; and the HTTP client, for `/stats`."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as http:

        async def send(question: Any, scheduled: float) -> Record:
            clock, detail = asyncio.get_running_loop().time, ""
            try:
                headers = {"content-type": "application/json"}
                answer = await http.post(path, content=question.body, headers=headers)
                outcome = OK if answer.status_code == 200 else str(answer.status_code)
                if outcome == OK:
                    told = label(json.loads(answer.content))
                    outcome, detail = (OK, "") if told == question.label else (WRONG, f"{question.label} -> {told}")
            except httpx.TimeoutException:
                outcome = "timeout"
            except httpx.TransportError:
                outcome = "connection"
            return Record(scheduled, clock(), outcome, 0, (), detail)

        yield send, http
