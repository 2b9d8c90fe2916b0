"""What is measured: the stages that exist and speak for one model, and the peers, each in a process of its own."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flo.catalog import find_stages
from flo.servers import running_stage

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 120.0
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
"""of every server alike; the first keeps torch's idle threads from spinning, which starves whoever else is running"""

LANES = {
    "01": "/basic_generate",
    "02": "/basic_generate",
    "03": "/generate_stream",
}
"""the route that is measured, of each stage that serves one model"""


@dataclass(frozen=True)
class Target:
    """A running server: what tables call it, where it listens, and the route to measure."""

    name: str
    url: str
    path: str


def model_directory(name: str) -> str:
    """The directory under `models/`, or the name as it is."""
    path = ROOT / "models" / name
    return str(path) if path.is_dir() else name


@contextmanager
def running_peer(peer: str, model: str) -> Iterator[Target]:
    """Serve a peer for the length of a `with` block. Raises `RuntimeError` if it does not start."""
    command = [sys.executable, "-m", "benchmarks.peers", peer, "--model", model_directory(model)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    give_up = threading.Timer(START_SECONDS, process.kill)
    give_up.start()
    try:
        assert process.stdout
        _, _, url = process.stdout.readline().strip().partition(": ")
        give_up.cancel()
        if not url:
            raise RuntimeError(f"{peer} did not start; its error is above")
        yield Target(peer, url, "/basic_generate")
    finally:
        give_up.cancel()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


@contextmanager
def running_target(name: str, model: str) -> Iterator[Target]:
    """Serve a stage ("01") or a peer ("ten_line_server") for the length of a `with` block."""
    if name not in LANES:
        with running_peer(name, model) as target:
            yield target
        return
    with running_stage(name, "--model", model, env=ENVIRONMENT) as server:
        yield Target(name, server.url, LANES[name])


def existing_stages() -> list[str]:
    """The numbers of the stages that serve one model, as far as they exist."""
    return [stage.number for stage in find_stages() if stage.number in LANES]
