"""`python -m benchmarks.gpu_check`, rehearsed: without a GPU, and as on a machine that has no web packages."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.gpu import eviction, parity
from benchmarks.gpu.rows import Row, agreeing
from benchmarks.gpu.steps import Shape, Step, difference
from benchmarks.gpu.without_web import Struct
from benchmarks.stamp import RESULTS
from tests.serving import Stage

ROOT = Path(__file__).resolve().parents[2]
ABSENT = ("fastapi", "starlette", "uvicorn", "pydantic", "httpx", "rich", "msgspec", "zmq", "prometheus_client")
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))"
RUN = f"{WITHOUT}; from benchmarks import gpu_check as it; sys.exit(it.main())"


def check(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", RUN, *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)


@pytest.mark.timeout(160)
def test_a_rehearsal_needs_no_gpu_and_no_web_packages_and_writes_nothing() -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in RESULTS.iterdir())
    done = check("--cpu-dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    progress, _, table = done.stdout.partition("\n\n")
    assert [line.partition(":")[0] for line in progress.splitlines()] == [
        module.__name__.rpartition(".")[2] for module in gpu_check.CHECKS
    ]
    head, *rows, foot = table.splitlines()
    assert head.startswith("rehearsal on the CPU")
    assert all(row.startswith("pass") for row in rows)
    for subject in ("float16", "tiny-opt", "llama, 7 rows", "3 x 20", "rotary", "llama, 3 prompts", "intents"):
        assert any(subject in row for row in rows), f"nothing was said of {subject}"
    assert {row[:5] for row in rows if "times" in row} == {"pass*"}
    assert foot.startswith("*") and "mean nothing" in foot
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
    assert [row.passed for row in eviction.check("cpu")] == [False, False, True]


def test_attention_that_is_wrong_is_off_by_more_than_is_allowed() -> None:
    right: Any = Stage("07_paged_attention").attention.TorchAttention

    class Forgetful(right):
        def decode(self, query: Any, cache: Any, tables: Any, seq_lens: Any, scaling: float) -> Any:
            return super().decode(query, cache, tables, seq_lens - 1, scaling)

    class Leaky(right):
        def decode(self, query: Any, cache: Any, tables: Any, seq_lens: Any, scaling: float) -> Any:
            return super().decode(query, cache, tables, seq_lens + 1, scaling)

    shape = Shape(((18, 1), (33, 1), (20, 20), (40, 7)), heads=4, kv_heads=2, size=16, dtype=torch.float32)

    def passes(attention: Any) -> bool:
        step = Step(shape, "cpu", seed=3)
        return agreeing("", "", difference(step.run(attention), step.expected()), 1e-5).passed

    assert passes(right())
    assert not passes(Forgetful())
    assert not passes(Leaky()), "NaN is not close to anything"


def test_only_a_tie_excuses_another_token() -> None:
    gaps = [0.5, 5e-5, 0.5]
    assert parity.agrees([1, 2, 3], [1, 2, 3], gaps)
    assert parity.agrees([1, 7, 9], [1, 2, 3], gaps)
    assert not parity.agrees([1, 2, 9], [1, 2, 3], gaps)
    assert not parity.agrees([1, 2], [1, 2, 3], gaps)


def test_a_check_that_raises_has_failed_and_is_told() -> None:
    def broken(_: str) -> Iterator[Row]:
        yield Row("broken", "first", "fine", passed=True)
        raise RuntimeError("out\nof memory")

    rows = list(gpu_check.told("broken", broken, "cuda"))
    assert [row.passed for row in rows] == [True, False]
    assert rows[1].found == "RuntimeError: out of memory"


def test_what_stands_in_for_a_struct_has_its_fields_and_defaults() -> None:
    class Message(Struct, tag=True, frozen=True):
        name: str
        work: dict[str, float] = {}  # noqa: RUF012  as msgspec allows

    one, other = Message("a"), Message("b", work={"steps": 1.0})  # pyright: ignore[reportCallIssue]
    assert (one.name, one.work, other.work) == ("a", {}, {"steps": 1.0})
    with pytest.raises(AttributeError):
        one.name = "c"


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu_check"])
    assert gpu_check.main() == 2
    assert "no CUDA device" in capsys.readouterr().err
