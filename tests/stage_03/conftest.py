"""The app in process with a scripted worker; the engine alone with a scripted executor; the real server, shared."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from flo.servers import Server, running_stage
from tests.conftest import ROOT
from tests.serving import Stage, serving

stage = Stage("03_continuous_streaming")


class ScriptedExecutor:
    """An executor without a process: `script(rows)` returns the tokens of a step."""

    def __init__(self, script: Callable[[list[Any]], list[Any]]) -> None:
        self.script = script
        self.ready = threading.Event()
        self.failure = None

    def start(self) -> None:
        self.ready.set()

    def close(self) -> None:
        self.ready.clear()

    def execute(self, rows: list[Any]) -> tuple[list[Any], Any]:
        return self.script(rows), stage.stats.Work(rows=len(rows), forward_passes=1, row_steps=len(rows))


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return stage.tokenization.Tokenizer(str(ROOT / "models" / "tiny-opt"))


@pytest.fixture
def engine(tokenizer: Any) -> Callable[..., Any]:
    """`with engine(parts, script) as engine`: the parts' engine, scheduler and mailbox around a scripted executor."""

    @contextmanager
    def build(parts: Any, script: Callable[[list[Any]], list[Any]], batch_size: int = 16) -> Iterator[Any]:
        scheduler = parts.scheduler(batch_size, 128)
        built = parts.engine(ScriptedExecutor(script), scheduler, tokenizer, stage.trace.Tracer(), parts.mailbox)
        built.start()
        try:
            yield built
        finally:
            built.close()

    return build


@pytest.fixture
def scripted() -> Callable[..., Any]:
    """`with scripted(parts, max_queue=2) as client`: the app with those parts, but for a worker that needs no model."""

    def serve(parts: Any, **settings: Any) -> Any:
        worker = "tests.stage_03.scripted:Worker"
        return serving(stage.server.create_app(stage.settings.Settings(**settings), replace(parts, worker=worker)))

    return serve


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_stage("03") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
