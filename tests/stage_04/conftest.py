"""The app in process with scripted workers; the real server in a process, shared by all its tests."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from flo.servers import Server, running_stage
from tests.serving import Stage, serving
from tests.stage_04.scripted import Script

stage = Stage("04_lru_models")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def scripted(script: Script, tmp_path: Path) -> Callable[..., Any]:
    """`with scripted(parts, slots=1) as client`: the app with those parts, scripted models a, b, c and bad ones."""

    def serve(parts: Any, **settings: Any) -> Any:
        names = ["a", "b", "c", "unusable", "broken"]
        common = {"type": "any", "version": "1", "description": ""}
        models = [{"id": name, "name": name, "framework": "scripted", **common} for name in names]
        models.append({"id": "odd", "name": "odd", "framework": "abacus", **common})
        (tmp_path / "models.json").write_text(json.dumps({"models": models}))
        workers = {**parts.workers, "scripted": script.worker}
        app = stage.server.create_app(
            stage.settings.Settings(models=tmp_path, **settings), replace(parts, workers=workers)
        )
        return serving(app)

    return serve


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_stage("04") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
