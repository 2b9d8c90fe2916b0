"""The app in process with scripted workers; the real server in a process, shared by all its tests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from flo.servers import Server, running_stage
from tests.serving import Stage, serving
from tests.stage_06.scripted import Script

stage = Stage("06_pinned_streams")
NAMES = {"scripted": ["a", "b", "c", "broken", "unusable"], "scripted-stream": ["s", "t", "u", "broken-stream"]}


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def scripted(script: Script, tmp_path: Path) -> Callable[..., Any]:
    """`with scripted(parts, slots=1) as client`: the app with those parts; a, b, c predict, and s, t, u stream.

    Whatever a test still holds is let go at the end.
    """

    @contextmanager
    def serve(
        parts: Any,
        knobs: dict[str, Any] | None = None,
        prepare: Callable[[Any], object] = lambda _: None,
        **settings: Any,
    ) -> Iterator[httpx.Client]:
        common = {"type": "any", "version": "1", "description": "", **(knobs or {})}
        models = [
            {"id": name, "name": name, "framework": framework, **common}
            for framework, names in NAMES.items()
            for name in names
        ]
        (tmp_path / "models.json").write_text(json.dumps({"models": models}))
        workers = {**parts.workers, "scripted": script.worker, "scripted-stream": script.streaming}
        app = stage.server.create_app(
            stage.settings.Settings(models=tmp_path, **settings), replace(parts, workers=workers)
        )
        prepare(app)
        with serving(app) as client:
            try:
                yield client
            finally:
                for gate in script.gates.values():
                    gate.open.set()

    return serve


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_stage("06") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
