"""`python -m benchmarks.gpu_check`, rehearsed: without a GPU, and as on a machine that has no web packages."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.stamp import RESULTS
from tests.serving import Stage

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_WEB = "import sys; sys.modules.update(fastapi=None, starlette=None, uvicorn=None, httpx=None, rich=None)"
RUN = f"{WITHOUT_WEB}; from benchmarks import gpu_check; sys.exit(gpu_check.main())"


def check(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", RUN, *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def test_a_rehearsal_needs_no_gpu_and_no_web_packages_and_writes_nothing() -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in RESULTS.iterdir())
    done = check("--cpu-dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout.splitlines()[-4:]
    assert told[0].startswith("rehearsal on the CPU")
    assert [line.split()[:4:3] for line in told[1:]] == [["pass", name] for name in ("digits", "shapes", "intents")]
    assert sorted((path.name, path.stat().st_mtime_ns) for path in RESULTS.iterdir()) == before


def test_a_model_that_stays_in_memory_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check has to see what it is for."""
    kept: list[object] = []
    worker = Stage("04_lru_models").torchvision_worker.TorchVisionWorker

    class Hoarder(worker):
        def load(self) -> None:
            super().load()
            kept.append(self.model)

    monkeypatch.setattr(Stage("04_lru_models").torchvision_worker, "TorchVisionWorker", Hoarder)
    assert [row.passed for row in gpu_check.eviction("cpu")] == [False, False, True]


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu_check"])
    assert gpu_check.main() == 2
    assert "no CUDA device" in capsys.readouterr().err
