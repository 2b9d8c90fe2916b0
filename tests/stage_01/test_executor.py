"""The executor at its contract: every call is answered, with its own reply or with a named error."""

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from multiprocessing import Pipe
from typing import Any

import pytest

from tests.serving import Gate, Stage

stage = Stage("01_single_request")
SCRIPTED = "tests.stage_01.scripted:Worker"


@contextmanager
def executor(parts: Any, worker: str = SCRIPTED, deadline: float = 60.0, **options: Any) -> Iterator[Any]:
    """A started executor, closed at the end."""
    player = parts.executor(worker, "no model", "cpu", deadline, stage.trace.Tracer(), **options)
    try:
        player.start()
        yield player
    finally:
        player.close()


@contextmanager
def callers() -> Iterator[Any]:
    """Call `execute` with one prompt on a thread of its own."""
    with ThreadPoolExecutor(16) as pool:
        yield lambda player, prompt: pool.submit(player.execute, [stage.sequence.Sequence(prompt, 1)])


def answer(call: "Future[Any]", patience: float, complaint: str) -> str:
    """The text that a call ends with; an answer that does not come in time fails the test."""
    try:
        [completion], _ = call.result(patience)
    except FutureTimeout:
        pytest.fail(complaint)
    return completion.text


class ReversingChild:
    """A child, on a thread, that takes two calls and answers the second first."""

    def __init__(self, took: threading.Event) -> None:
        self.connection, self._theirs = Pipe()
        self.process = self
        self._took = took
        self._theirs.send(("ready", 0, None, []))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                first = self._theirs.recv()
                self._took.set()
                for call_id, batch in [self._theirs.recv(), first]:
                    self._theirs.send(
                        ("complete", call_id, ([stage.sequence.Completion(batch[0].prompt, 1)], None), [])
                    )
        except (EOFError, OSError):
            return

    def kill(self) -> None:
        with socket.socket(fileno=os.dup(self._theirs.fileno())) as pipe:
            pipe.shutdown(socket.SHUT_RDWR)  # closing it would not wake a thread that reads from it

    def join(self) -> None: ...


def test_each_caller_gets_its_own_reply(parts: Any, patience: float) -> None:
    took = threading.Event()
    with callers() as call, executor(parts, spawn=lambda *_: ReversingChild(took)) as player:
        for round_ in range(20):
            took.clear()
            first = call(player, f"first {round_}")
            assert took.wait(30)
            second = call(player, f"second {round_}")
            for prompt, caller in ((f"first {round_}", first), (f"second {round_}", second)):
                text = answer(caller, patience, "no reply")
                assert text == prompt, f"{prompt!r} got the reply to somebody else's prompt, {text!r}"


def test_a_call_with_a_child_that_dies_fails_at_once(parts: Any, patience: float) -> None:
    with callers() as call, executor(parts) as player:
        doomed = call(player, "die")
        with pytest.raises(stage.errors.EngineDead):
            answer(doomed, patience, "the caller still waits for a dead child")
        assert player.ready.wait(30)
        assert answer(call(player, "hello"), 30, "no reply from the new child") == "hello"


def test_a_pass_past_its_deadline_fails_and_the_child_is_replaced(parts: Any, patience: float) -> None:
    with callers() as call, Gate() as gate, executor(parts, deadline=0.3) as player:
        hung = call(player, f"hold {gate.port}")
        gate.wait()
        with pytest.raises(stage.errors.EngineDead):
            answer(hung, patience, "the caller still waits for a hung child")
        assert player.ready.wait(30)
        following = call(player, "hello")
        try:
            [completion], _ = following.result(patience)
        except (FutureTimeout, stage.errors.EngineDead):
            pytest.fail("the next caller met the same hung child")
        assert completion.text == "hello"


def test_an_error_in_the_child_fails_that_call_and_no_other(parts: Any) -> None:
    with callers() as call, executor(parts) as player:
        with pytest.raises(stage.errors.WorkerFailed, match="scripted trouble"):
            answer(call(player, "raise"), 30, "no reply")
        assert answer(call(player, "hello"), 30, "no reply") == "hello"


@pytest.mark.parametrize(
    ("worker", "reason", "starts"),
    [
        ("DiesLoading", "lost 3 times while starting: the process that runs the model died", 3),
        ("FailsLoading", "lost 3 times while starting: .*no room for the weights", 3),
        ("CannotLoad", "^that is no model$", 1),
    ],
)
def test_a_child_that_cannot_start_is_given_up_with_its_error(worker: str, reason: str, starts: int) -> None:
    spawned: list[str] = []

    def count(*args: Any) -> Any:
        spawned.append(args[0])
        return stage.child.spawn(*args)

    given_up = threading.Event()
    player = stage.executor.Executor(
        f"tests.stage_01.scripted:{worker}", "", "cpu", 60.0, stage.trace.Tracer(), spawn=count
    )
    player.on_fatal = given_up.set
    with pytest.raises(stage.errors.EngineDead, match=reason):
        player.start()
    assert given_up.wait(30)
    assert len(spawned) == starts
    with pytest.raises(stage.errors.EngineDead, match=reason):
        player.execute([stage.sequence.Sequence("hello", 1)])
    player.close()


def test_close_answers_whoever_waits_and_leaves_no_process() -> None:
    with callers() as call, Gate() as gate, executor(stage.parts.Parts()) as player:
        waiting = call(player, f"hold {gate.port}")
        gate.wait()
        player.close()
        with pytest.raises(stage.errors.EngineDead):
            waiting.result(30)
        with pytest.raises(stage.errors.EngineDead):
            player.execute([stage.sequence.Sequence("hello", 1)])
