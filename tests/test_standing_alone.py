"""A stage needs nothing around it: a copy of it runs, and its web process never loads what the child is for."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from flo.catalog import find_stage
from tests.processes import ROOT, SECONDS, address, started

STAGES = sorted(path.name for path in (ROOT / "stages").glob("[0-9][0-9]_*"))
TORCH_FREE = [name for name in STAGES if name[:2] in {"01", "02", "03", "07"}]
ASK = {"prompt": "Count from 3 to 9:"}
ANSWER = {"generated_text": " 3 4 5 6 7 8 9"}
IRIS = {"model_id": "c83b5a16-f0d7-49e2-b7c4-1a6e2f9d8b04", "input_data": [5.1, 3.5, 1.4, 0.2]}


def model_flags(stage: str) -> list[str]:
    """Where a copy of a stage finds what it serves; and to start at once, where it has to be told."""
    models, quick = ROOT / "models", find_stage(stage).quick
    return [*quick, *(["--model", str(models / "tiny-opt")] if stage in TORCH_FREE else ["--models", str(models)])]


def assert_it_answers(stage: str, url: str) -> None:
    """One question whose answer is known."""
    if stage in TORCH_FREE:
        assert httpx.post(f"{url}/basic_generate", json=ASK, timeout=60).json() == ANSWER
    else:
        [prediction] = httpx.post(f"{url}/predict", json=IRIS, timeout=60).json()["predictions"]
        assert prediction["label"] == "setosa"


CENSUS = """
import atexit, json, os, pathlib, resource, runpy, sys
def peak():  # kilobytes; what getrusage tells on Linux begins with the peak of the process that started this one
    if (status := pathlib.Path("/proc/self/status")).exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def report():
    heavy = [name for name in ("torch", "transformers", "torchvision", "numpy") if name in sys.modules]
    found = {"heavy": heavy, "kilobytes": peak()}
    with open(os.environ["CENSUS"], "w") as file:
        json.dump(found, file)
atexit.register(report)
runpy.run_module(os.environ["MODULE"], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("stage", TORCH_FREE)
def test_the_web_process_never_imports_torch(stage: str, tmp_path: Path) -> None:
    """Read off the served process itself, when it ends, after every route has answered."""
    found = census(f"stages.{stage}", tmp_path, ROOT, *model_flags(stage))
    assert found["heavy"] == []
    assert found["kilobytes"] < 150 * 1024


@pytest.mark.parametrize("late", [False, True])
def test_the_census_sees_torch_where_it_is(tmp_path: Path, late: bool) -> None:
    """Even where it comes with the last route that is asked."""
    package = tmp_path / "with_torch"
    shutil.copytree(ROOT / "stages" / "03_continuous_streaming", package)
    server, gateway = (package / "server.py").read_text(), '"""Have a prompt continued by the vLLM server'
    assert gateway in server
    line = f"import torch\n        {gateway}" if late else gateway
    (package / "server.py").write_text(server.replace(gateway, line) if late else f"import torch\n{server}")
    found = census("with_torch", tmp_path, tmp_path, *model_flags("03_continuous_streaming"))
    assert "torch" in found["heavy"]


def census(module: str, tmp_path: Path, cwd: Path, *flags: str) -> dict[str, Any]:
    """Ask every route of `module`, served by a process that reports what it has imported when it ends."""
    script, report = tmp_path / "census.py", tmp_path / "census.json"
    script.write_text(CENSUS)
    command = [sys.executable, str(script), "--port", "0", *flags]
    with started(command, cwd, PYTHONPATH=str(cwd), MODULE=module, CENSUS=str(report)) as server:
        with httpx.Client(base_url=address(server), timeout=60) as client:
            assert client.post("/basic_generate", json=ASK).json() == ANSWER
            ask_every_route(client)
        server.terminate()
        assert server.wait(SECONDS) == 0
    return json.loads(report.read_text())


def ask_every_route(client: httpx.Client) -> None:
    """With the example that its own description gives. What is described may not fail."""
    openapi = client.get("/openapi.json").json()
    for path, methods in openapi["paths"].items():
        if "get" in methods:
            assert client.get(path).status_code == 200
        if "post" in methods:
            reference = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            schema = openapi["components"]["schemas"][reference.rpartition("/")[2]]
            body = {name: schema["properties"][name]["examples"][0] for name in schema["required"]}
            status = client.post(path, json=body).status_code
            assert status == (503 if path == "/generate_vllm" else 200), path  # no vLLM is configured


@pytest.mark.parametrize("stage", STAGES)
def test_a_copy_under_another_name_runs_alone(stage: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "stages" / stage, tmp_path / "my_server")
    command = [sys.executable, "-m", "my_server", "--port", "0", *model_flags(stage)]
    with started(command, tmp_path, PYTHONPATH="") as server:
        assert_it_answers(stage, address(server))
        server.terminate()
        assert server.wait(SECONDS) == 0
