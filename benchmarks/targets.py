"""What is measured: the stages that exist and speak for one model, and the peers, each in a process of its own."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from flo.catalog import find_stages
from flo.servers import running_stage

from .load import Client

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 120.0
COMPILE_SECONDS = 600.0
"""for a stage; the last one may compile its model first"""
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
"""of every server alike; the first keeps torch's idle threads from spinning, which starves whoever else is running"""

STAGES = ("01", "02", "03")
"""those that serve one model to many people"""
ALL_STAGES = (*STAGES, "06", "07")
"""those that write text; 04 and 05 serve classifiers only"""
TINY_OPT_ID = "3e0f7b52-9c64-4d18-8a2b-6f5d1c90e706"
"""what stage 06 calls the model that ships"""
LANES = {
    "03": {"03": "/basic_generate", "03_stream": "/generate_stream"},
    "06": {"06_stream": "/generate_stream"},
    "07": {"07": "/basic_generate", "07_stream": "/v1/completions"},
}
"""routes of those that stream; the other stages and the peers have "/basic_generate" alone"""


class ModelMissing(Exception):
    """A scenario needs a model, or an environment, that is not there; the message says how to get it."""


@dataclass(frozen=True)
class Target:
    """A running server: what tables call it, where it listens, and the route to measure."""

    name: str
    url: str
    path: str = "/basic_generate"
    more: Mapping[str, str] = field(default_factory=dict)
    """what each request has besides"""

    def lanes(self) -> "list[Target]":
        """The route that most servers have and, as a target of its own ("03_stream"), the one that streams."""
        lanes = LANES.get(self.name, {self.name: self.path})
        return [replace(self, name=name, path=path) for name, path in lanes.items()]

    def client(self, timeout: float = 60.0) -> Client:
        """One that asks this target."""
        return Client(self.url, self.path, timeout, self.more)


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
        if not url or not answers(url, process):
            raise RuntimeError(f"{peer} did not start; its error is above")
        give_up.cancel()
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


def answers(url: str, process: "subprocess.Popen[str]") -> bool:
    """Wait until a peer answers, or has ended."""
    while process.poll() is None:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/heartbeat", trust_env=False).is_success
        time.sleep(0.05)
    return False


@contextmanager
def running_target(
    name: str, model: str, *flags: str, env: Mapping[str, str] | None = None, called: str = ""
) -> Iterator[Target]:
    """Serve a stage ("01"), with flags of its own, or a peer ("ten_line_server") for the length of a `with` block.

    `called` is what tables call it, if not by its own name.
    """
    if not name.isdigit():
        with running_peer(name, model) as target:
            yield target
        return
    many = name == "06"  # models, each asked for by its id
    more = {"model_id": TINY_OPT_ID} if many else {}
    flags = flags if many else ("--model", model, *flags)
    environment = ENVIRONMENT | dict(env or {})
    with running_stage(name, *flags, env=environment, start_seconds=COMPILE_SECONDS, quick=False) as server:
        yield Target(called or name, server.url, more=more)


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
