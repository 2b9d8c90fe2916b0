"""The engine core: its loop in process, and the whole of it in a real process, spoken to over real sockets."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.conftest import ROOT
from tests.stage_07.core import EAGER, Parts, add, stage
from tests.stage_07.scripted_worker import DEADLY, LOST, POISON
from tests.test_processes import descendants, wait_gone

messages = stage.messages
SCRIPTED = replace(Parts(), worker="tests.stage_07.scripted_worker:Worker")
REPLY = msgspec.msgpack.Decoder(messages.Ready | messages.Outputs | messages.Dead)


class Core:
    """The client's side of one engine core."""

    def __init__(self, process: Any, inputs: Any, outputs: Any) -> None:
        self.process = process
        self.inputs = inputs
        self.outputs = outputs
        self.stats: Any = None
        self.events: list[Any] = []
        self.silent = 0
        """messages without outputs in them"""

    def send(self, *sent: Any) -> None:
        for message in sent:
            self.inputs.send(msgspec.msgpack.encode(message))

    def receive(self) -> Any:
        """The next message. What must come, comes within a minute."""
        assert self.outputs.poll(60_000), "the engine core says nothing"
        return REPLY.decode(self.outputs.recv())

    def answers(self, *asked: Any) -> dict[str, Any]:
        """Send requests; for each its tokens, and its last output. Others may be heard of meanwhile."""
        self.send(*asked)
        tokens: dict[str, list[int]] = {one.request_id: [] for one in asked}
        ends: dict[str, Any] = {}
        while len(ends) < len(asked):
            reply = self.receive()
            assert isinstance(reply, messages.Outputs), reply
            self.stats, self.silent = reply.stats, self.silent + (not reply.outputs)
            self.events += reply.events
            for output in reply.outputs:
                if output.request_id not in tokens:
                    continue
                tokens[output.request_id] += output.token_ids
                if output.finish_reason:
                    ends[output.request_id] = (tokens[output.request_id], output)
        return ends


@contextmanager
def running_core(parts: Any = SCRIPTED, model: str = "scripted", **config: Any) -> Iterator[Core]:
    """A core in a process of its own; what it says first is still to be received."""
    settings = stage.config.EngineConfig(model=model, **{"num_gpu_blocks_override": 64, **EAGER, **config})
    with zmq.Context() as context, context.socket(zmq.PUSH) as inputs, context.socket(zmq.PULL) as outputs:
        addresses = []
        for socket in (inputs, outputs):
            socket.setsockopt(zmq.LINGER, 0)
            addresses.append(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
        spawn = multiprocessing.get_context("spawn")
        arguments = (settings, 5, *addresses, parts.for_core())
        process = spawn.Process(target=stage.engine_core.run_engine_core, args=arguments)
        process.start()
        try:
            yield Core(process, inputs, outputs)
        finally:
            process.kill()
            process.join()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(ROOT / "models" / "tiny-opt" / "tokenizer.json"))


@pytest.mark.parametrize("backend", ["uni", "mp"])
def test_the_shipped_model_answers_over_sockets(backend: str, tokenizer: Any) -> None:
    model, where = str(ROOT / "models" / "tiny-opt"), {"distributed_executor_backend": backend}
    budgets = {"max_num_batched_tokens": 8, "max_num_seqs": 4}
    with running_core(Parts(), model, trace=True, **where, **budgets) as core:
        assert core.receive() == messages.Ready(5, stage.limits.Limits(1024, 16, 64, 896))
        texts = ["Count from 3 to 9:", "Explain the KV cache in one sentence.", "Count from 41 to 44:"]
        asked = [add(str(place), tokenizer.encode(text).ids, 50) for place, text in enumerate(texts)]
        ends = core.answers(*asked)
        assert tokenizer.decode(ends["0"][0]) == " 3 4 5 6 7 8 9"
        assert tokenizer.decode(ends["2"][0]) == " 41 42 43 44"
        assert "keys and values" in tokenizer.decode(ends["1"][0])
        assert {end.finish_reason for _, end in ends.values()} == {"stop"}
        stats = core.stats
        assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)
        assert stats.blocks_free + stats.blocks_cached == 64
        assert stats.work["steps"] == stats.work["forward_passes"] > 0
        check_trace(core.events, {"0", "1", "2"}, "worker" if backend == "mp" else "engine core 5")
        family = descendants(core.process.pid)
        assert len(family) >= (backend == "mp")
    assert wait_gone(family) == set()


def check_trace(events: list[Any], ids: set[str], forward_in: str) -> None:
    """The way of every request through the core can be told from the events."""
    named = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    happened: dict[str, list[Any]] = {}
    for event in events:
        happened.setdefault(event["name"], []).append(event)
    assert {event["args"]["request_id"] for event in happened["queued"]} == ids
    for event in happened["scheduled"]:
        assert sum(event["args"]["tokens"]) <= event["args"]["budget"] == 8
    assert {event["args"]["request_id"] for event in happened["blocks"]} == ids
    popped = [block for event in happened["blocks"] for block in event["args"]["popped"]]
    assert popped and 0 not in popped
    for event in happened["forward"]:
        seen = event["args"]
        assert len(seen["slots"]) == len(seen["positions"]) == seen["query_starts"][-1] == seen["tokens"]
        assert event["pid"] == named[forward_in]
    assert {name for event in happened["updated"] for name in event["args"]["finished"]} == ids
    assert len(happened["forward"]) == len(happened["scheduled"]) == len(happened["updated"])


def test_requests_end_each_in_its_own_way() -> None:
    with running_core(max_num_seqs=4, max_num_batched_tokens=16, max_queue=3, max_model_len=100) as core:
        assert core.receive() == messages.Ready(5, stage.limits.Limits(100, 16, 64, 1000))
        ends = core.answers(
            add("plain", [5], 3), add("poison", [9, POISON], 3), add("long", [5] * 90, 20), add("strange", [5000], 3)
        )
        assert ends["plain"][0] == [6, 7, 8] and ends["plain"][1].finish_reason == "length"
        errors = {name: (end.error_kind, end.error) for name, (_, end) in ends.items() if end.error}
        assert errors == {
            "poison": ("failed", "ValueError('poison')"),
            "long": (
                "invalid",
                "110 tokens (90 of the prompt, 20 new ones) are more than the 100 that a request may have",
            ),
            "strange": ("invalid", "token id 5000 is not in the vocabulary of 1000"),
        }
        ends = core.answers(add("A", [100] * 70, 2))
        assert ends["A"][0] == [101, 102]
        assert core.silent >= 4, "a step that only computes a part of a prompt is heard of too"
        core.send(add("endless", [100], 99), messages.Abort(["endless", "nobody"]))
        assert core.answers(add("B", [200], 2))["B"][0] == [201, 202]
        while core.stats.running:
            core.stats = core.receive().stats
        assert core.stats.blocks_used == 0


def test_what_cannot_be_read_ends_the_core_with_a_reason() -> None:
    with running_core() as core:
        core.receive()
        core.inputs.send(b"\xc1 no message")
        dead = core.receive()
        assert isinstance(dead, messages.Dead) and dead.core == 5 and not dead.unusable
        assert "MessagePack" in dead.reason
        core.process.join(30)
        assert core.process.exitcode == 0


@pytest.mark.parametrize("backend", ["uni", "mp"])
@pytest.mark.parametrize(("model", "unusable", "said"), [("unusable", True, "no such"), ("broken", False, "boom")])
def test_a_model_that_cannot_be_had_is_told(backend: str, model: str, unusable: bool, said: str) -> None:
    with running_core(model=model, distributed_executor_backend=backend) as core:
        dead = core.receive()
        assert isinstance(dead, messages.Dead) and dead.unusable == unusable and said in dead.reason
        core.process.join(30)
        assert core.process.exitcode == 0


@pytest.mark.parametrize(
    ("backend", "token", "said"),
    [
        ("mp", DEADLY, "the worker's process died"),
        ("mp", LOST, "the device is lost"),
        ("uni", LOST, "the device is lost"),
    ],
)
def test_a_worker_that_dies_takes_its_core_along(backend: str, token: int, said: str) -> None:
    with running_core(distributed_executor_backend=backend) as core:
        core.receive()
        assert core.answers(add("A", [5], 2))["A"][0] == [6, 7]
        core.send(add("B", [token], 2))
        dead = core.receive()
        assert isinstance(dead, messages.Dead) and said in dead.reason and not dead.unusable
        core.process.join(30)
        assert not core.process.is_alive()


PARENT = """
import multiprocessing, sys
from tests.stage_07.test_engine_core import running_core
if __name__ == "__main__":
    with running_core(distributed_executor_backend="mp") as core:
        print(core.receive().core, flush=True)
        sys.stdin.read()
"""


def test_core_and_worker_end_with_the_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as parent:
        assert parent.stdout and parent.stdout.readline() == b"5\n"
        family = descendants(parent.pid)
        assert len(family) >= 2
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(30)
    assert wait_gone(family) == set()


class Calls:
    """An executor that plays `script(rows)`, and remembers who was in each call."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.limits, self.stop_token_ids = worker.limits, worker.stop_token_ids

    def execute(self, rows: list[Any]) -> Any:
        try:
            return self.worker.execute(rows)
        except ValueError as exc:
            raise stage.executor.StepFailed(repr(exc)) from exc

    def close(self) -> None:
        pass


def test_a_poisoned_row_is_found_by_trying_each_alone() -> None:
    config = stage.config.EngineConfig(max_num_seqs=4)
    worker = stage.core_parts.resolve(SCRIPTED.worker)(config)
    core = stage.engine_core.EngineCore.build(config, SCRIPTED.for_core(), Calls(worker), stage.trace.Tracer())
    for name, prompt in (("A", [5]), ("bad", [POISON]), ("C", [8])):
        assert core.handle(add(name, prompt, 2)) == []
    busy, outputs = core.turn()
    assert busy
    assert worker.calls == [["A", "bad", "C"], ["A"], ["bad"], ["C"]]
    assert {output.request_id: output.token_ids for output in outputs} == {"A": [6], "bad": [], "C": [9]}
    [error] = [output for output in outputs if output.finish_reason]
    assert (error.request_id, error.finish_reason, error.error) == ("bad", "error", "ValueError('poison')")
    core.turn()
    assert worker.calls[4:] == [["A", "C"]]
    assert core.turn() == (False, [])
    assert core.stats().blocks_used == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_num_seqs": 0}, "--max-num-seqs must be at least 1, not 0"),
        ({"block_size": 0}, "--block-size must be at least 1"),
        ({"num_gpu_blocks_override": 0}, "--num-gpu-blocks-override must be at least 1"),
        ({"gpu_memory_utilization": 1.5}, "--gpu-memory-utilization must be above 0 and at most 1"),
        ({"max_num_batched_tokens": 8}, r"--max-num-batched-tokens \(8\) must be at least --max-num-seqs \(256\)"),
        ({"dtype": "int8"}, "--dtype must be one of auto, float32, bfloat16, float16, not int8"),
        ({"distributed_executor_backend": "ray"}, "--distributed-executor-backend must be one of uni, mp"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_their_flag(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        stage.config.EngineConfig(**settings)
