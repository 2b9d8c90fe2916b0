"""The commands as a user types them. Those that start a stage cost seconds, so there are few."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from flo.errors import StageFailed
from flo.servers import running_stage
from flo.tour import take_tour

ROOT = Path(__file__).resolve().parents[2]


def flo(*args: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flo", *args]
    return subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    program = "import sys; from flo.cli import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    for command in ("tour", "follow", "run", "stages", "diff", "faults", "fetch", "bench"):
        assert f" {command} " in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "flo.cli" in loaded
    assert not loaded & {"torch", "transformers", "httpx", "fastapi", "flo.servers"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "singel_request"], "did you mean 01_single_request?"),
        (["run", "01", "--fault", "gluedprompt"], "did you mean glued_prompt?"),
        (["follow", "01", "hi", "--fault=glued_prompt:cut_character"], "did you mean cut_characters?"),
        (["diff", "01", "99"], "no stage '99'"),
        (["faults", "nine"], "no stage 'nine'"),
        (["tour", "--stage", "1_single"], "did you mean 01_single_request?"),
        (["fetch", "smolm"], "did you mean smollm2?"),
    ],
)
def test_an_unknown_name_gets_one_line_and_a_suggestion(args: list[str], says: str) -> None:
    done = flo(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_faults_lists_every_fault_file() -> None:
    done = flo("faults", "01")
    assert done.returncode == 0
    for path in (ROOT / "stages" / "01_single_request" / "faults").glob("[!_]*.py"):
        assert path.stem in done.stdout


def test_run_passes_flags_through_from_any_directory(tmp_path: Path) -> None:
    done = flo("run", "1", "--model", "./not-here", cwd=tmp_path)
    assert done.returncode == 2
    assert "--model ./not-here" in done.stderr.splitlines()[-1]


def test_a_stage_that_cannot_start_says_why() -> None:
    with pytest.raises(StageFailed, match="--model not-here: no directory"), running_stage("01", "--model", "not-here"):
        pass


def test_follow_tells_the_way_of_a_request_and_its_answer() -> None:
    done = flo("follow", "01", "Count from 3 to 9:")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith('ms: " 3 4 5 6 7 8 9"')
    processes = re.findall(r"---- (\w+), process \d+", done.stdout)
    assert processes == ["server", "child", "server"]
    for place in re.findall(r" at (\S+):\d+$", done.stdout, re.MULTILINE):
        assert (ROOT / "stages" / place).is_file()


def test_the_tour_ends_with_a_table_and_leaves_figures(tmp_path: Path) -> None:
    said = io.StringIO()
    status = take_tour(Console(file=said, width=110), "tiny-opt", ["01"], tmp_path / "results")
    right = re.search(r"All (\d+) answers are right", said.getvalue())
    assert (status, bool(right)) == (0, True), said.getvalue()
    assert right
    assert re.search(rf"^ ?01 single request +{right[1]}/{right[1]} ", said.getvalue(), re.MULTILINE)
    result = json.loads((tmp_path / "results" / "tour.json").read_text("utf-8"))
    assert result["model"] == "tiny-opt"
    assert [(row["stage"], row["asked"]) for row in result["stages"]] == [("01_single_request", int(right[1]))]


def test_run_is_the_stage_itself_and_ends_on_a_signal() -> None:
    command = [sys.executable, "-m", "flo", "run", "01", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("01 single request: http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
