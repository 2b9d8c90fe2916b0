"""The app in process with a scripted worker in its child; the real server in a process, shared by all its tests."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from flo.servers import Server, running_stage
from tests.serving import Stage, serving

stage = Stage("02_static_batching")


@pytest.fixture
def scripted() -> Callable[..., Any]:
    """`with scripted(parts, max_queue=2) as client`: the app with those parts, but for a worker that needs no model."""

    def serve(parts: Any, **settings: Any) -> Any:
        app = stage.server.create_app(
            stage.settings.Settings(**settings), replace(parts, worker="tests.stage_02.scripted:Worker")
        )
        return serving(app)

    return serve


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_stage("02") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
