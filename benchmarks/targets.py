"""What is measured: the stages that exist and speak for one model, and the peers, each in a process of its own."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flo.catalog import find_stages
from flo.servers import running_stage

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 120.0
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
"""of every server alike; the first keeps torch's idle threads from spinning, which starves whoever else is running"""

STAGES = ("01", "02", "03")
"""those that serve one model to many people"""
STREAMING = ("03",)
"""those that stream as well"""


class ModelMissing(Exception):
    """A scenario needs a model, or an environment, that is not there; the message says how to get it."""


@dataclass(frozen=True)
class Target:
    """A running server: what tables call it, where it listens, and the route to measure."""

    name: str
    url: str
    path: str = "/basic_generate"

    def lanes(self) -> "list[Target]":
        """The route that all servers have and, as a target of its own ("03_stream"), the one that streams."""
        streams = self.name in STREAMING
        return [self, *([Target(f"{self.name}_stream", self.url, "/generate_stream")] if streams else [])]


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
        yield Target(peer, url)
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
def running_target(name: str, model: str, *flags: str) -> Iterator[Target]:
    """Serve a stage ("01"), with flags of its own, or a peer ("ten_line_server") for the length of a `with` block."""
    if name not in STAGES:
        with running_peer(name, model) as target:
            yield target
        return
    with running_stage(name, "--model", model, *flags, env=ENVIRONMENT) as server:
        yield Target(name, server.url)


@contextmanager
def running_targets(names: Iterable[str], model: str) -> Iterator[list[Target]]:
    """Serve all of them, in that order; two start at a time."""
    with ExitStack() as stack:
        with ThreadPoolExecutor(2) as pool:
            targets = list(pool.map(lambda name: stack.enter_context(running_target(name, model)), names))
        yield targets


def existing_stages() -> list[str]:
    """The numbers of the stages that serve one model, as far as they exist."""
    return [stage.number for stage in find_stages() if stage.number in STAGES]


def need(model: str) -> None:
    """Raises `ModelMissing` unless `models/` has this model."""
    if not (ROOT / "models" / model / "config.json").is_file():
        raise ModelMissing(f"models/{model} is not there; `flo fetch {model}` gets it")
