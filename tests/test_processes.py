"""Whole servers: started as a user starts them, stopped and killed in every way. For every stage there is."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from flo.servers import running_stage

ROOT = Path(__file__).resolve().parents[1]
STAGES = sorted(path.name for path in (ROOT / "stages").glob("[0-9][0-9]_*"))
TORCH_FREE = [name for name in STAGES if name[:2] in {"01", "02", "03", "07"}]
ONE_MODEL = TORCH_FREE
ASK = {"prompt": "Count from 3 to 9:"}
ANSWER = {"generated_text": " 3 4 5 6 7 8 9"}
IRIS = {"model_id": "c83b5a16-f0d7-49e2-b7c4-1a6e2f9d8b04", "input_data": [5.1, 3.5, 1.4, 0.2]}


def model_flags(stage: str) -> list[str]:
    """Where a copy of a stage finds what it serves."""
    models = ROOT / "models"
    return ["--model", str(models / "tiny-opt")] if stage in ONE_MODEL else ["--models", str(models)]


def assert_it_answers(stage: str, url: str) -> None:
    """One question whose answer is known."""
    if stage in ONE_MODEL:
        assert httpx.post(f"{url}/basic_generate", json=ASK, timeout=60).json() == ANSWER
    else:
        [prediction] = httpx.post(f"{url}/predict", json=IRIS, timeout=60).json()["predictions"]
        assert prediction["label"] == "setosa"


CENSUS = """
import atexit, json, os, resource, runpy, sys
def report():
    heavy = [name for name in ("torch", "transformers", "torchvision", "numpy") if name in sys.modules]
    found = {"heavy": heavy, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    with open(os.environ["CENSUS"], "w") as file:
        json.dump(found, file)
atexit.register(report)
runpy.run_module(os.environ["MODULE"], run_name="__main__", alter_sys=True)
"""


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process, by id."""
    listing = subprocess.run(["ps", "-axwwo", "pid=,ppid=,command="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 2) for line in listing.splitlines())
    return {int(pid): (int(parent), command) for pid, parent, command in (row for row in rows if len(row) == 3)}


def descendants(pid: int) -> set[int]:
    """All processes that descend from `pid`."""
    tree, found, fresh = processes(), set(), {pid}
    while fresh:
        fresh = {child for child, (parent, _) in tree.items() if parent in fresh} - found
        found |= fresh
    return found


def wait_gone(pids: set[int]) -> set[int]:
    """Those of `pids` that still run after many looks; `ps` itself takes the time."""
    left = pids
    for _ in range(500):
        left = {pid for pid in pids if pid in processes() and "defunct" not in processes()[pid][1]}
        if not left:
            return left
    return left


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_leaves_no_process_and_no_port(stage: str, name: str) -> None:
    with running_stage(stage) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200
        family = descendants(server.pid)
        assert family or stage not in ONE_MODEL
        os.kill(server.pid, getattr(signal, name))
        assert server.process.wait(30) == 0
        assert wait_gone(family) == set()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")


@pytest.mark.parametrize("stage", ONE_MODEL)
def test_the_child_of_a_killed_parent_ends_by_itself(stage: str) -> None:
    with running_stage(stage) as server:
        family = descendants(server.pid)
        assert family
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait(30)
        assert wait_gone(family) == set()


@pytest.mark.parametrize("stage", ONE_MODEL)
def test_a_killed_child_is_replaced(stage: str) -> None:
    with running_stage(stage) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        [child] = [pid for pid in descendants(server.pid) if "spawn_main" in processes()[pid][1]]
        os.kill(child, signal.SIGKILL)
        statuses = [client.get("/health").status_code for _ in range(200)]
        while client.get("/health").status_code != 200:
            statuses.append(503)
        assert 503 in statuses
        assert client.post("/basic_generate", json=ASK).json() == ANSWER


@pytest.mark.parametrize("stage", TORCH_FREE)
def test_the_web_process_never_imports_torch(stage: str, tmp_path: Path) -> None:
    """Read off the served process itself, when it ends, after it has answered."""
    found = census(f"stages.{stage}", tmp_path, cwd=ROOT)
    assert found["heavy"] == []
    kilobytes = found["rss"] / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 150 * 1024


def test_the_census_sees_torch_where_it_is(tmp_path: Path) -> None:
    package = tmp_path / "with_torch"
    shutil.copytree(ROOT / "stages" / STAGES[0], package)
    (package / "server.py").write_text("import torch\n" + (package / "server.py").read_text())
    assert "torch" in census("with_torch", tmp_path, cwd=tmp_path, model=str(ROOT / "models" / "tiny-opt"))["heavy"]


def census(module: str, tmp_path: Path, cwd: Path, model: str = "tiny-opt") -> dict[str, Any]:
    """Serve one answer from `module` in a process that reports what it has imported when it ends."""
    script, report = tmp_path / "census.py", tmp_path / "census.json"
    script.write_text(CENSUS)
    command = [sys.executable, str(script), "--port", "0", "--model", model]
    environment = {**os.environ, "PYTHONPATH": str(cwd), "MODULE": module, "CENSUS": str(report)}
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().split()[-1]
            assert httpx.post(f"{url}/basic_generate", json=ASK, timeout=60).json() == ANSWER
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
    return json.loads(report.read_text())


@pytest.mark.parametrize("stage", STAGES)
def test_a_copy_under_another_name_runs_alone(stage: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "stages" / stage, tmp_path / "my_server")
    command = [sys.executable, "-m", "my_server", "--port", "0", *model_flags(stage)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            assert_it_answers(stage, process.stdout.readline().split()[-1])
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "no-such-model"], "--model no-such-model"),
        (["--model", "./nowhere"], "--model ./nowhere"),
        (["--model", str(ROOT / "tests")], "no config.json"),
        (["--fault", "gluedprompt"], "did you mean glued_prompt?"),
        (["--max-queue", "0"], "--max-queue must be at least 1"),
        (["--deadline", "nan"], "--deadline"),
        (["--port", "70000"], "70000"),
        (["--host", "256.1.1.1"], "256.1.1.1"),
        (["--device", "abacus"], "abacus"),
        (["--trace", "/nowhere/trace.json"], "/nowhere/trace.json"),
    ],
)
def test_what_cannot_be_served_gets_one_clear_line(flags: list[str], said: str) -> None:
    command = [sys.executable, "-m", f"stages.{STAGES[0]}", "--port", "0", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if "error: " in line]
    assert said in line
