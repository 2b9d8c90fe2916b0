"""The executor at its contract: every call is answered, with its own reply or with a named error.

Most children here are on threads, so that no answer depends on how fast a process starts.
"""

import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import Any

import pytest

from tests.serving import Gate, Stage, eventually
from tests.stage_01.children import FakeChild, answers, dies, hangs, in_turn, reply

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


def assert_it_works(call: Any, player: Any) -> None:
    """The child of the moment, an earlier one having been lost, answers."""
    assert player.ready.wait(30)
    assert answer(call(player, "hello"), 30, "no reply from the new child") == "hello"


def test_each_caller_gets_its_own_reply(parts: Any, patience: float) -> None:
    took = threading.Event()

    def reverses(pipe: Any) -> None:
        while True:
            first = pipe.recv()
            took.set()
            reply(pipe, *pipe.recv())
            reply(pipe, *first)

    with callers() as call, executor(parts, spawn=in_turn(reverses)) as player:
        for round_ in range(20):
            took.clear()
            first = call(player, f"first {round_}")
            assert took.wait(30)
            second = call(player, f"second {round_}")
            for prompt, caller in ((f"first {round_}", first), (f"second {round_}", second)):
                text = answer(caller, patience, "no reply")
                assert text == prompt, f"{prompt!r} got the reply to somebody else's prompt, {text!r}"


def test_a_call_with_a_child_that_dies_fails_at_once(parts: Any, patience: float) -> None:
    with callers() as call, executor(parts, spawn=in_turn(dies, answers)) as player:
        with pytest.raises(stage.errors.EngineDead, match="the process that runs the model died"):
            answer(call(player, "doomed"), patience, "the caller still waits for a dead child")
        assert_it_works(call, player)


def test_a_pass_past_its_deadline_fails_and_the_child_is_replaced(parts: Any, patience: float) -> None:
    with callers() as call, executor(parts, deadline=0.1, spawn=in_turn(hangs, answers)) as player:
        with pytest.raises(stage.errors.EngineDead):
            answer(call(player, "hung"), patience, "the caller still waits for a hung child")
        assert player.ready.wait(30)
        player.deadline = 60.0  # what follows must come, however slow the machine
        try:
            text = answer(call(player, "hello"), patience, "the next caller met the same hung child")
        except stage.errors.EngineDead:
            pytest.fail("the next caller met the same hung child")
        assert text == "hello"


def test_a_real_child_is_replaced_and_an_error_in_it_fails_one_call_and_no_other() -> None:
    with callers() as call, executor(stage.parts.Parts()) as player:
        with pytest.raises(stage.errors.WorkerFailed, match="scripted trouble"):
            answer(call(player, "raise"), 30, "no reply")
        assert answer(call(player, "hello"), 30, "no reply") == "hello"
        with pytest.raises(stage.errors.EngineDead):
            answer(call(player, "die"), 30, "no reply")
        assert_it_works(call, player)


def test_a_child_that_stops_in_the_middle_of_a_reply_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for a reply that does not begin, and here is longer than the test."""
    monkeypatch.setattr(stage.child, "RECEIVE_SECONDS", 1)
    with callers() as call, executor(stage.parts.Parts(), "tests.stage_01.scripted:HalfReplies") as player:
        held = call(player, "hello")
        with pytest.raises(stage.errors.EngineDead, match="died"):
            answer(held, 30, "the caller still waits for the rest of a reply")


@pytest.mark.parametrize("reply", [("complete", 1), "nonsense", None, b"\x80no pickle"])
def test_a_child_that_sends_nonsense_is_lost_and_its_callers_are_told(reply: Any) -> None:
    def talks_nonsense(pipe: Any) -> None:
        pipe.recv()
        if isinstance(reply, bytes):
            pipe.send_bytes(reply)
        else:
            pipe.send(reply)
        pipe.recv()

    with callers() as call, executor(stage.parts.Parts(), spawn=in_turn(talks_nonsense, answers)) as player:
        with pytest.raises(stage.errors.EngineDead):
            answer(call(player, "hello"), 30, "the caller still waits")
        assert_it_works(call, player)


def test_a_reply_that_nobody_waits_for_is_nobodys() -> None:
    def replies_twice(pipe: Any) -> None:
        while True:
            call_id, batch = pipe.recv()
            pipe.send(("complete", call_id + 1000, "somebody else's", []))
            for _ in range(2):
                reply(pipe, call_id, batch)

    with callers() as call, executor(stage.parts.Parts(), spawn=in_turn(replies_twice)) as player:
        for prompt in ("one", "two", "three"):
            assert answer(call(player, prompt), 30, "the caller still waits") == prompt


class Pickles:
    """A sequence that does something at the very moment when it is pickled."""

    request_id, prompt = "id", "late"

    def __init__(self, meanwhile: Any) -> None:
        self.meanwhile = meanwhile

    def __reduce__(self) -> Any:
        self.meanwhile()
        return str, ("late",)


def test_a_child_lost_while_its_batch_is_pickled_fails_that_call() -> None:
    children = [FakeChild(hangs), FakeChild(answers)]
    spawned = iter(children)
    with callers() as call, executor(stage.parts.Parts(), spawn=lambda *_: next(spawned)) as player:

        def lose_the_child() -> None:
            children[0].kill()
            eventually(lambda: not player.ready.is_set(), "that the child is gone")

        with ThreadPoolExecutor() as pool:
            late = pool.submit(player.execute, [Pickles(lose_the_child)])
            with pytest.raises(stage.errors.EngineDead, match="died"):
                answer(late, 30, "the caller still waits")
        assert_it_works(call, player)


def test_a_batch_that_cannot_be_pickled_fails_alone() -> None:
    def cannot() -> None:
        raise TypeError("cannot pickle this")

    with callers() as call, executor(stage.parts.Parts(), spawn=in_turn(answers)) as player:
        with pytest.raises(stage.errors.WorkerFailed, match="cannot pickle this"):
            player.execute([Pickles(cannot)])
        assert_it_works(call, player)


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


def test_each_loss_in_a_row_makes_the_pause_longer() -> None:
    """A child that dies of its first pass, again and again. Only that a pause is too short can be told by a clock."""
    spawned: list[float] = []

    def spawn(*_: Any) -> Any:
        spawned.append(time.monotonic())
        return FakeChild(dies)

    lost: list[float] = []
    with callers() as call, executor(stage.parts.Parts(), spawn=spawn) as player:
        for _ in range(4):
            assert player.ready.wait(30)
            lost.append(time.monotonic())  # before the loss, so that the pause looks longer than it is
            with pytest.raises(stage.errors.EngineDead):
                answer(call(player, "hello"), 30, "the caller still waits")
        eventually(lambda: len(spawned) == 5, "the child after the last loss")
    pauses = [begins - ended for ended, begins in zip(lost, spawned[1:], strict=True)]
    assert [pause >= 0.1 * 2**losses for losses, pause in enumerate(pauses)] == [True] * 4


def test_close_answers_whoever_waits_and_leaves_no_process() -> None:
    with callers() as call, Gate() as gate, executor(stage.parts.Parts()) as player:
        waiting = call(player, f"hold {gate.port}")
        gate.wait()
        player.close()
        with pytest.raises(stage.errors.EngineDead, match="the server is closing"):
            waiting.result(30)
        with pytest.raises(stage.errors.EngineDead, match="the server is closing"):
            player.execute([stage.sequence.Sequence("hello", 1)])
        assert multiprocessing.active_children() == []


def test_close_while_a_child_is_being_spawned_leaves_nothing() -> None:
    spawning, go, children = threading.Event(), threading.Event(), []

    def spawn(*_: Any) -> Any:
        spawning.set()
        assert go.wait(30)
        children.append(FakeChild(answers))
        return children[0]

    before = set(threading.enumerate())
    player = stage.executor.Executor("", "", "", 60.0, stage.trace.Tracer(), spawn=spawn)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(player.start)
        assert spawning.wait(30)
        closing = pool.submit(player.close)
        with pytest.raises(FutureTimeout):
            closing.result(0.1)  # it waits for the spawn, and so has begun
        go.set()
        closing.result(30)
        with pytest.raises(stage.errors.EngineDead, match="the server is closing"):
            starting.result(30)
    assert children[0].killed.is_set()
    eventually(lambda: set(threading.enumerate()) <= before, "that the threads have ended")
