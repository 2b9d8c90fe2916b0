"""Whole servers: started, stopped and killed in every way. For every stage there is.

A scripted worker stands in for the model where only the process around it matters.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from flo.servers import running_stage, stage_command
from tests.processes import ROOT, SECONDS, address, descendants, listens, scripted_stage, started, the_child, wait_gone
from tests.serving import Gate, Stage, eventually, wait_healthy

STAGES = sorted(path.name for path in (ROOT / "stages").glob("[0-9][0-9]_*"))
ONE_MODEL = [name for name in STAGES if name[:2] in {"01", "02", "03", "07"}]
SCRIPTED = [name for name in ONE_MODEL if name[:2] != "07"]  # the worker of 07 has tests of its own, and so its loading
ROUTES = {"03": ("generate_stream", {}), "07": ("v1/completions", {"stream": True})}
"""those that stream"""
SIGNALS = ["SIGTERM", "SIGINT"]
ASK = {"prompt": "Count from 3 to 9:"}
ANSWER = {"generated_text": " 3 4 5 6 7 8 9"}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_leaves_no_process_and_no_port(stage: str, name: str) -> None:
    with running_stage(stage) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200
        looked = httpx.head(f"{server.url}/health")  # as load balancers do
        assert (looked.status_code, looked.content) == (200, b"")
        family = descendants(server.pid)
        assert family or stage not in ONE_MODEL
        os.kill(server.pid, getattr(signal, name))
        assert server.process.wait(SECONDS) == 0
        assert wait_gone(family) == set()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")


@pytest.mark.parametrize("stage", SCRIPTED)
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_while_the_model_is_loading_ends_it_all(stage: str, name: str) -> None:
    with Gate() as gate, started(scripted_stage(stage, "--device", f"hold {gate.port}")) as server:
        family = eventually(lambda: descendants(server.pid), "a child")
        os.kill(server.pid, getattr(signal, name))
        assert server.wait(SECONDS) == 0
        assert wait_gone(family) == set()
        assert server.stderr and "Traceback" not in server.stderr.read()


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_while_a_core_is_loading_ends_the_server(name: str) -> None:
    """Of stage 07, whose scripted cores are no processes."""
    [stage] = set(ONE_MODEL) - set(SCRIPTED)
    with Gate() as gate, started(scripted_stage(stage, "--device", f"hold {gate.port}")) as server:
        gate.wait()
        os.kill(server.pid, getattr(signal, name))
        assert server.wait(SECONDS) == 0
        assert server.stderr and "Traceback" not in server.stderr.read()


def ask_and_hold(url: str, gate: Gate, pool: ThreadPoolExecutor, stage: str) -> "Future[httpx.Response]":
    """Have a request in a pass that lasts until the gate opens; the streaming route where there is one."""
    path, more = ROUTES.get(stage[:2], ("basic_generate", {}))
    held = pool.submit(httpx.post, f"{url}/{path}", json={"prompt": f"hold {gate.port}", **more}, timeout=SECONDS)
    gate.wait()
    return held


@pytest.mark.parametrize("stage", ONE_MODEL)
@pytest.mark.parametrize("name", [*SIGNALS, "SIGINT twice"])
def test_a_signal_during_a_pass_tells_the_caller_why(stage: str, name: str) -> None:
    number = getattr(signal, name.split()[0])
    with ThreadPoolExecutor() as pool, Gate() as gate, started(scripted_stage(stage)) as server:
        url = address(server)
        held = ask_and_hold(url, gate, pool, stage)
        family = descendants(server.pid)
        os.kill(server.pid, number)
        if "twice" in name:
            eventually(lambda: not listens("127.0.0.1", int(url.rpartition(":")[2])), "that it has taken the first")
            os.kill(server.pid, number)
        answer = held.result(SECONDS)
        assert "the server is closing" in answer.text
        if stage[:2] in ROUTES:
            assert answer.text.startswith(("event: error\n", 'data: {"error": '))
        else:
            assert answer.status_code == 503
        assert server.wait(SECONDS) == 0
        assert wait_gone(family) == set()
        assert server.stderr and "Traceback" not in server.stderr.read()


@pytest.mark.parametrize("stage", ["01", "06"])
def test_a_signal_while_a_request_arrives_is_told_to_whoever_sends_it(stage: str) -> None:
    with running_stage(stage) as server:
        path = "basic_generate" if stage == "01" else "predict"
        head = f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(head.encode() + b'{"prompt": ')
            assert httpx.get(f"{server.url}/health").status_code == 200  # by now it has been taken up
            os.kill(server.pid, signal.SIGTERM)
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 503 ") and b"the server is closing" in answer
        assert server.process.wait(SECONDS) == 0
        assert server.stderr() == ""


@pytest.mark.parametrize("stage", SCRIPTED)
def test_the_child_of_a_killed_parent_ends_by_itself_in_the_middle_of_a_pass(stage: str) -> None:
    """An idle child would notice that its pipe has closed; one that works does not look at its pipe."""
    with ThreadPoolExecutor() as pool, Gate() as gate, started(scripted_stage(stage)) as server:
        held = ask_and_hold(address(server), gate, pool, stage)
        family = descendants(server.pid)
        assert family
        os.kill(server.pid, signal.SIGKILL)
        server.wait(SECONDS)
        assert wait_gone(family) == set()
        assert isinstance(held.exception(SECONDS), httpx.TransportError)


@pytest.mark.parametrize("stage", ONE_MODEL)
def test_the_child_of_a_killed_parent_ends_by_itself_when_idle(stage: str) -> None:
    with running_stage(stage) as server:
        family = descendants(server.pid)
        assert family
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait(SECONDS)
        assert wait_gone(family) == set()


@pytest.mark.parametrize("stage", SCRIPTED)
def test_the_child_of_a_parent_killed_while_it_loads_ends_by_itself(stage: str) -> None:
    with Gate() as gate, started(scripted_stage(stage, "--device", f"hold {gate.port}")) as server:
        gate.wait()
        family = descendants(server.pid)
        assert family
        os.kill(server.pid, signal.SIGKILL)
        server.wait(SECONDS)
        assert wait_gone(family) == set()


@pytest.mark.parametrize("stage", SCRIPTED)
def test_it_listens_only_once_the_model_is_ready(stage: str) -> None:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    with Gate() as gate, started(scripted_stage(stage, "--port", str(port), "--device", f"hold {gate.port}")) as server:
        gate.wait()
        assert not listens("127.0.0.1", port)
        gate.open_for_good()
        assert httpx.get(f"{address(server)}/health").status_code == 200


@pytest.mark.parametrize("stage", ONE_MODEL)
def test_a_killed_child_is_replaced(stage: str) -> None:
    with running_stage(stage) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        os.kill(the_child(server.pid), signal.SIGKILL)
        eventually(lambda: client.get("/health").status_code == 503, "that the child is gone")
        wait_healthy(client)
        assert client.post("/basic_generate", json=ASK).json() == ANSWER


@pytest.mark.parametrize("stage", SCRIPTED)
def test_a_model_lost_for_good_ends_the_server_with_its_error(stage: str, tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    needed.touch()
    with started(scripted_stage(stage, "--device", f"needs {needed}")) as server:
        address(server)
        needed.unlink()
        os.kill(the_child(server.pid), signal.SIGKILL)
        assert server.wait(SECONDS) == 1
        assert server.stderr and server.stderr.read().splitlines()[-1] == f"error: {needed} is gone"


def test_a_model_whose_files_are_gone_is_lost_for_good(tmp_path: Path) -> None:
    """The real worker cannot load it again, and says so."""
    model = tmp_path / "model"
    shutil.copytree(ROOT / "models" / "tiny-opt", model)
    with started(stage_command(STAGES[0], "--port", "0", "--model", str(model))) as server:
        address(server)
        shutil.rmtree(model)
        os.kill(the_child(server.pid), signal.SIGKILL)
        assert server.wait(SECONDS) == 1
        assert server.stderr and f"error: {model} cannot be loaded on cpu: " in server.stderr.read()


def test_ctrl_c_in_the_tour_leaves_no_process() -> None:
    with started([sys.executable, "-m", "flo", "tour", "--stage", "01"]) as tour:
        family = eventually(
            lambda: found if len(found := descendants(tour.pid)) > 1 else set(), "a server and its child"
        )
        tour.send_signal(signal.SIGINT)
        assert tour.wait(SECONDS) == 130
        assert wait_gone(family) == set()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "no-such-model"], "--model no-such-model: no directory, no hub id, and none of "),
        (["--model", "./nowhere"], "--model ./nowhere"),
        (["--model", str(ROOT / "tests")], "no config.json"),
        (["--fault", "gluedprompt"], "did you mean glued_prompt?"),
        (["--max-queue", "0"], "--max-queue must be at least 1"),
        (["--deadline", "nan"], "--deadline"),
        (["--port", "70000"], "70000"),
        (["--host", "256.1.1.1"], "256.1.1.1"),
        (["--device", "abacus"], "abacus"),
        (["--trace", "/nowhere/trace.json"], "--trace /nowhere/trace.json"),
        (["--trace", str(ROOT)], f"--trace {ROOT}: Is a directory"),
    ],
)
def test_what_cannot_be_served_gets_one_clear_line(flags: list[str], said: str) -> None:
    command = stage_command(STAGES[0], "--port", "0", *flags)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if "error: " in line]
    assert said in line


@pytest.mark.parametrize("stage", SCRIPTED)
def test_only_models_that_write_text_are_offered(stage: str) -> None:
    with pytest.raises(ValueError, match=r"none of .*tiny-opt") as caught:
        Stage(stage).settings.find_model("no-such-model")
    assert not {"digits", "intents", "iris", "shapes"} & set(str(caught.value).replace(",", " ").split())
