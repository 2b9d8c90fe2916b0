"""The app in process over scripted cores, and the official client for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
from openai import OpenAI

from tests.serving import Stage, serving
from tests.stage_07.scripted import Cores

stage = Stage("07_paged_attention")


@contextmanager
def scripted(
    parts: Any = None, cores: Cores | None = None, deadline: float = 60.0, **engine: Any
) -> Iterator[httpx.Client]:
    """The app with those parts, but for its engine cores; `engine` are fields of its `EngineConfig`."""
    with serving(app_of(parts, cores, deadline, **engine)) as client:
        yield client


def app_of(parts: Any = None, cores: Cores | None = None, deadline: float = 60.0, **engine: Any) -> Any:
    """The same app, not served yet."""
    settings = stage.settings.Settings(stage.config.EngineConfig(**engine), deadline=deadline)
    return stage.server.create_app(settings, replace(parts or stage.parts.Parts(), launch=cores or Cores()))


@contextmanager
def openai_for(client: httpx.Client) -> Iterator[OpenAI]:
    """The official client, which tries nothing twice."""
    with OpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0, timeout=60) as official:
        yield official


def wait_for(client: httpx.Client, **counters: Any) -> dict[str, Any]:
    """`/stats` once its counters have these values; the requests themselves take the time."""
    return wait_until(client, "/stats", lambda stats: all(stats[name] == value for name, value in counters.items()))


def wait_until(client: httpx.Client, path: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What `path` answers once something holds of it."""
    answer: dict[str, Any] = {}
    for _ in range(5_000):
        answer = client.get(path).json()
        if holds(answer):
            return answer
    raise AssertionError(f"never came: {answer}")
