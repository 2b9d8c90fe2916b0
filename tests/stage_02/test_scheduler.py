"""The scheduler alone: pure, so a test is a sequence of calls."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving import Stage

stage = Stage("02_static_batching")


def sequences(*prompts: str) -> list[Any]:
    return [stage.sequence.Sequence(prompt, 50) for prompt in prompts]


def names(batch: list[Any]) -> str:
    return "".join(sequence.prompt for sequence in batch)


def test_a_batch_is_topped_up_in_order_of_arrival(parts: Any) -> None:
    scheduler = parts.scheduler(batch_size=4, max_queue=128)
    a, b, c, d, e, f = sequences(*"ABCDEF")
    scheduler.add([a, b, c, d, e, f])
    assert names(scheduler.schedule()) == "ABCD"
    assert names(scheduler.schedule()) == "ABCD"
    scheduler.finish(b)
    assert names(scheduler.schedule()) == "ACDE"
    for sequence in (a, c, d, e):
        scheduler.finish(sequence)
    assert names(scheduler.schedule()) == "F"


def test_the_returned_batch_belongs_to_the_caller(parts: Any) -> None:
    scheduler = parts.scheduler(batch_size=4, max_queue=128)
    scheduler.add(sequences(*"ABCD"))
    served = []
    for sequence in scheduler.schedule():
        scheduler.finish(sequence)
        served.append(sequence)
    assert names(served) == "ABCD", "finishing one sequence hid its neighbor from the loop"
    assert scheduler.schedule() == []


def test_a_request_is_admitted_whole_or_not_at_all(parts: Any) -> None:
    scheduler = parts.scheduler(batch_size=4, max_queue=5)
    scheduler.add(sequences(*"ABC"))
    with pytest.raises(stage.errors.QueueFull, match="3 of 5"):
        scheduler.add(sequences(*"DEF"))
    scheduler.add(sequences(*"DE"))
    assert names(scheduler.schedule()) == "ABCD"


def test_the_queue_has_a_bound(parts: Any) -> None:
    scheduler = parts.scheduler(batch_size=4, max_queue=128)
    scheduler.add(sequences(*["a"] * 128))
    try:
        scheduler.add(sequences("one too many"))
    except stage.errors.QueueFull:
        return
    pytest.fail("the queue took more than it may hold")


def test_a_dropped_sequence_never_runs(parts: Any) -> None:
    scheduler = parts.scheduler(batch_size=2, max_queue=128)
    a, b, c = sequences(*"ABC")
    scheduler.add([a, b, c])
    scheduler.schedule()
    scheduler.drop(a)  # it runs already: nothing to be saved
    scheduler.drop(c)
    scheduler.drop(c)
    assert names(scheduler.schedule()) == "AB"
    scheduler.finish(a)
    scheduler.finish(b)
    assert scheduler.schedule() == []


@given(st.lists(st.tuples(st.sampled_from(["add", "schedule", "finish", "drop"]), st.integers(0, 9)), max_size=60))
def test_nothing_is_lost_and_nothing_runs_twice(moves: list[tuple[str, int]]) -> None:
    scheduler = stage.scheduler.Scheduler(batch_size=3, max_queue=8)
    waiting: list[Any] = []
    active: list[Any] = []
    for move, number in moves:
        if move == "add":
            fresh = sequences(*"x" * (number % 4 + 1))
            try:
                scheduler.add(fresh)
                waiting += fresh
            except stage.errors.QueueFull:
                assert len(waiting) + len(fresh) > 8
        elif move == "schedule":
            while waiting and len(active) < 3:
                active.append(waiting.pop(0))
            assert scheduler.schedule() == active
        elif move == "finish" and active:
            scheduler.finish(active.pop(number % len(active)))
        elif move == "drop" and waiting:
            scheduler.drop(waiting.pop(number % len(waiting)))
