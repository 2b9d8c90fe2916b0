"""`python -m benchmarks`: what it writes, and that wrong answers end it with nothing written."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.records import WrongAnswers
from benchmarks.scenarios.scenario import Result, Scenario
from benchmarks.sheet import Sheet
from benchmarks.targets import ModelMissing, need


def good(seconds: float, tell: Callable[[str], object]) -> Result:
    tell("measuring")
    return {"cells": [seconds, 1.0 / 3]}


def wrong(seconds: float, tell: Callable[[str], object]) -> Result:
    raise WrongAnswers("1 of 9 answers were wrong, such as: 'Count from 3 to 4:' -> ' 3 5'")


def homeless(seconds: float, tell: Callable[[str], object]) -> Result:
    need("smollm3")
    return {}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    runs = {"good": good, "wrong": wrong}
    scenarios = {
        name: Scenario(name, f"the {name} one", "tiny-opt", 10.0, run, lambda _: Sheet("A table", ["number"], []))
        for name, run in runs.items()
    }
    monkeypatch.setattr(command, "SCENARIOS", scenarios)

    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["benchmarks", *words, "--out", str(tmp_path)])
        return command.main()

    return run


def test_a_result_is_written_with_its_stamp_and_rounded(run: Callable[..., int], tmp_path: Path) -> None:
    assert run("good", "--seconds", "2") == 0
    result = json.loads((tmp_path / "good.json").read_text(encoding="utf-8"))
    assert result["cells"] == [2.0, 0.3333]
    assert result["stamp"]["command"] == "python -m benchmarks good --seconds 2"
    assert result["stamp"]["model"] == "tiny-opt"


def test_wrong_answers_fail_loudly_and_write_nothing(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("wrong") == 1
    assert "1 of 9 answers were wrong" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_scenario_is_named_with_those_that_exist(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run("god")
    assert "no scenario 'god'; there are good, wrong" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_said_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios = {
        name: Scenario(name, name, "smollm3", 10.0, work, lambda _: Sheet("A table", [], []))
        for name, work in {"homeless": homeless, "good": good}.items()
    }
    monkeypatch.setattr(command, "SCENARIOS", scenarios)
    assert run("all") == 0
    assert "homeless: not measured: models/smollm3 is not there; `flo fetch smollm3`" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["good.json"]
    assert run("homeless") == 1
    with pytest.raises(ModelMissing):
        need("smollm3")


def test_a_quick_look_leaves_out_what_a_second_cannot_show(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., int], tmp_path: Path
) -> None:
    slow = Scenario("slow", "slow", "tiny-opt", 60.0, wrong, lambda _: Sheet("A table", [], []), quick=False)
    fast = Scenario("fast", "fast", "tiny-opt", 60.0, good, lambda _: Sheet("A table", [], []))
    monkeypatch.setattr(command, "SCENARIOS", {"slow": slow, "fast": fast})
    assert run("quick") == 0
    assert json.loads((tmp_path / "fast.json").read_text(encoding="utf-8"))["cells"][0] == command.QUICK_SECONDS
    assert run("quick", "slow") == 0
    assert run("slow") == 1
