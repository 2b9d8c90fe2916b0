"""The scheduler alone: pure, so a test is a sequence of calls."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving import Stage

stage = Stage("03_continuous_streaming")


def sequence(name: str = "prompt", max_new_tokens: int = 20, ignore_eos: bool = False) -> Any:
    sampling = stage.sequence.Sampling(max_new_tokens, 0.0, 0, ignore_eos)
    return stage.sequence.Sequence(name, [5, 6, 7], sampling, mailbox=None, arrived=0.0)


def names(batch: list[Any]) -> str:
    return "".join(sequence.name for sequence in batch)


WORD, STOP = stage.sequence.Token(9, False), stage.sequence.Token(1, True)


def test_a_sequence_gets_exactly_the_tokens_it_asked_for(parts: Any) -> None:
    scheduler = parts.scheduler(batch_size=4, max_queue=8)
    one = sequence(max_new_tokens=20)
    scheduler.add([one])
    reasons: list[str | None] = []
    while scheduler.schedule() and len(reasons) < 30:
        reasons.append(scheduler.update(one, WORD))
    assert len(reasons) <= 20, f"got more tokens than it asked for: {len(reasons)} for 20"
    assert reasons == [None] * 19 + ["length"]


def test_the_stop_token_ends_a_sequence_unless_it_is_to_be_ignored() -> None:
    scheduler = stage.scheduler.Scheduler(batch_size=4, max_queue=8)
    plain, ignoring = sequence(max_new_tokens=2), sequence(max_new_tokens=2, ignore_eos=True)
    scheduler.add([plain, ignoring])
    scheduler.schedule()
    assert scheduler.update(plain, STOP) == "stop"
    assert scheduler.update(ignoring, STOP) is None
    assert scheduler.schedule() == [ignoring]
    assert scheduler.update(ignoring, STOP) == "length"
    assert scheduler.schedule() == []


def test_six_requests_on_four_slots() -> None:
    """The six requests of stage 02 again: E and F join in the step after a slot frees, not after the longest."""
    scheduler = stage.scheduler.Scheduler(batch_size=4, max_queue=8)
    lengths = {"A": 3, "B": 8, "C": 2, "D": 5, "E": 4, "F": 2}
    scheduler.add([sequence(name, max_new_tokens=length) for name, length in lengths.items()])
    steps: list[str] = []
    while batch := scheduler.schedule():
        steps.append(names(batch))
        for one in batch:
            scheduler.update(one, WORD)
    assert steps == ["ABCD", "ABCD", "ABDE", "BDEF", "BDEF", "BE", "B", "B"]


def test_a_request_is_admitted_whole_or_not_at_all() -> None:
    scheduler = stage.scheduler.Scheduler(batch_size=1, max_queue=3)
    scheduler.add([sequence("A"), sequence("B")])
    with pytest.raises(stage.errors.QueueFull, match="2 of 3"):
        scheduler.add([sequence("C"), sequence("D")])
    scheduler.add([sequence("E")])
    assert names(list(scheduler.waiting)) == "ABE"


def test_the_work_ahead_is_counted_in_steps() -> None:
    scheduler = stage.scheduler.Scheduler(batch_size=2, max_queue=8)
    assert scheduler.steps_ahead() == 0
    scheduler.add([sequence(max_new_tokens=10) for _ in range(4)])
    assert scheduler.steps_ahead() == 20
    scheduler.add([sequence(max_new_tokens=50)])
    assert scheduler.steps_ahead() == 50  # one row cannot go faster than a step a token


@given(st.lists(st.tuples(st.sampled_from(["add", "step", "remove"]), st.integers(0, 20)), max_size=60))
def test_every_sequence_is_queued_running_or_gone_and_never_two(moves: list[tuple[str, int]]) -> None:
    scheduler = stage.scheduler.Scheduler(batch_size=3, max_queue=5)
    alive: list[Any] = []
    for move, number in moves:
        if move == "add":
            fresh = [sequence(max_new_tokens=number % 4 + 1) for _ in range(number % 3 + 1)]
            if len(scheduler.waiting) + len(fresh) <= 5:
                scheduler.add(fresh)
                alive += fresh
        elif move == "remove" and alive:
            gone = alive.pop(number % len(alive))
            scheduler.remove(gone)
            scheduler.remove(gone)
        elif move == "step":
            batch = scheduler.schedule()
            assert batch == alive[: len(batch)], "not first come, first served"
            assert len(batch) == min(3, len(alive))
            for one in batch:
                if scheduler.update(one, WORD):
                    alive.remove(one)
        assert [*scheduler.running, *scheduler.waiting] == alive
