"""The trace, which is the same in every stage: Chrome trace events, told by a fake clock, that survive a kill."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import ROOT, SECONDS, address, scripted_stage, started
from tests.serving import Gate, Stage

trace = Stage("01_single_request").trace


class Clock:
    """Seconds that pass when the test says so."""

    now = 10.0

    def __call__(self) -> float:
        return self.now


def read(path: Path) -> list[dict[str, Any]]:
    """A trace file as the viewers read it: a list of which the closing bracket may be missing."""
    text = path.read_text(encoding="utf-8").rstrip()
    return json.loads(text if text.endswith("]") else text.rstrip(",") + "]")


def described(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events themselves, without those that name processes and threads."""
    return [event for event in events if event["ph"] != "M"]


def test_a_moment_and_a_stretch_of_time() -> None:
    events: list[dict[str, Any]] = []
    clock = Clock()
    tracer = trace.Tracer(events.append, clock)
    tracer.instant("queued", request_id="a")
    clock.now = 12.0
    with tracer.span("forward", rows=2) as learned:
        clock.now = 12.5
        learned["ids"] = [7]
    queued, forward = described(events)
    assert (queued["name"], queued["ph"], queued["ts"]) == ("queued", "i", 10e6)
    assert (forward["name"], forward["ph"], forward["ts"], forward["dur"]) == ("forward", "X", 12e6, 0.5e6)
    for event, args in ((queued, {"request_id": "a"}), (forward, {"rows": 2, "ids": [7]})):
        assert (event["pid"], event["tid"]) == (os.getpid(), threading.get_native_id())
        part, at = event["args"].pop("part"), event["args"].pop("at")
        assert part == "test_a_moment_and_a_stretch_of_time"
        file, _, line = at.partition(":")
        assert file == "tests/test_trace.py"
        assert "tracer." in Path(__file__).read_text("utf-8").splitlines()[int(line) - 1]
        assert event["args"] == args


def test_a_stretch_of_time_that_ends_badly_is_told_too() -> None:
    events: list[dict[str, Any]] = []
    clock = Clock()
    with pytest.raises(ZeroDivisionError), trace.Tracer(events.append, clock).span("forward"):
        clock.now += 1.0
        raise ZeroDivisionError
    [forward] = described(events)
    assert forward["dur"] == 1e6


def test_processes_and_threads_are_named_once_each() -> None:
    events: list[dict[str, Any]] = []
    tracer = trace.Tracer(events.append, process="child")
    for _ in range(2):
        tracer.instant("here")
    other = threading.Thread(target=tracer.instant, args=("there",), name="driver")
    other.start()
    other.join(30)
    named = [(event["name"], event["args"]["name"], event["tid"]) for event in events if event["ph"] == "M"]
    here, there = threading.get_native_id(), described(events)[-1]["tid"]
    assert named == [
        ("process_name", "child", here),
        ("thread_name", threading.current_thread().name, here),
        ("process_name", "child", there),
        ("thread_name", "driver", there),
    ]
    for place, event in enumerate(events):  # a name comes before what happened there
        assert any(one["ph"] == "M" and one["tid"] == event["tid"] for one in events[: place + 1])


def test_without_a_sink_nothing_is_told_and_nothing_breaks() -> None:
    tracer = trace.Tracer()
    tracer.instant("queued")
    with tracer.span("forward") as learned:
        learned["ids"] = []
    tracer.replay([{"name": "from a child"}])


def test_what_a_child_sends_home_is_told_as_it_is() -> None:
    childs: list[dict[str, Any]] = []
    trace.Tracer(childs.append, Clock(), process="child").instant("forward", rows=1)
    ours: list[dict[str, Any]] = []
    trace.Tracer(ours.append).replay(json.loads(json.dumps(childs)))
    assert ours == childs


def test_a_file_has_a_whole_line_for_each_event_whoever_writes(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write = trace.file_sink(path)
    with ThreadPoolExecutor(8) as pool:
        for number in range(200):
            pool.submit(write, {"name": "x" * 500, "number": number})
    assert sorted(event["number"] for event in read(path)) == list(range(200))


def test_what_json_does_not_know_is_told_somehow(tmp_path: Path) -> None:
    trace.file_sink(tmp_path / "trace.json")({"name": "odd", "args": {"path": tmp_path, "text": "推論 \ud800"}})
    [event] = read(tmp_path / "trace.json")
    assert str(tmp_path) in event["args"]["path"]


def test_a_killed_process_leaves_all_that_it_had_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    program = (
        "import os, signal, sys; from importlib import import_module; from pathlib import Path\n"
        "trace = import_module('stages.01_single_request.trace')\n"
        "tracer = trace.Tracer(trace.file_sink(Path(sys.argv[1])))\n"
        "[tracer.instant('step', number=number) for number in range(50)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [event["args"]["number"] for event in described(read(path))] == list(range(50))


def test_a_killed_server_leaves_a_trace_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    command = scripted_stage("01_single_request", "--trace", str(path))
    with ThreadPoolExecutor() as pool, Gate() as gate, started(command) as server:
        url = address(server)
        assert httpx.post(f"{url}/basic_generate", json={"prompt": "hello"}, timeout=SECONDS).status_code == 200
        held = pool.submit(httpx.post, f"{url}/basic_generate", json={"prompt": f"hold {gate.port}"}, timeout=SECONDS)
        gate.wait()
        server.kill()
        server.wait(SECONDS)
        assert isinstance(held.exception(SECONDS), httpx.TransportError)
    names = [event["name"] for event in described(read(path))]
    assert names == ["queued", "into the pipe", "out of the pipe", "answered", "queued", "into the pipe"]
