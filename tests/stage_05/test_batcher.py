"""The batcher alone, under a fake clock: a test is a sequence of calls, and time is a number."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving import Stage

stage = Stage("05_dynamic_batcher")


@dataclass(eq=False)
class Item:
    name: str
    shape: Any = None
    arrived: float = 0.0
    gone: bool = False

    def cancelled(self) -> bool:
        return self.gone


def names(batches: list[list[Item]]) -> list[str]:
    return ["".join(item.name for item in batch) for batch in batches]


def park(batcher: Any, text: str, now: float, shape: Any = None) -> list[Item]:
    items = [Item(name, shape) for name in text]
    for item in items:
        batcher.submit(item, now)
    return items


def test_a_full_batch_goes_at_once(parts: Any) -> None:
    batcher = parts.batcher(max_batch=4, max_delay_ms=10, max_queue=128)
    park(batcher, "ABCDEFGHIJ", 0.0)
    assert names(batcher.tick(0.0)) == ["ABCD", "EFGH"]
    assert names(batcher.tick(0.0)) == []
    assert names(batcher.tick(0.010)) == ["IJ"]


def test_a_lone_input_waits_no_longer_than_the_delay(parts: Any) -> None:
    batcher = parts.batcher(max_batch=4, max_delay_ms=10, max_queue=128)
    park(batcher, "A", 1.0)
    assert names(batcher.tick(1.009)) == []
    assert names(batcher.tick(1.010)) == ["A"], "a lone input was left waiting for company"


def test_the_oldest_input_starts_the_clock(parts: Any) -> None:
    batcher = parts.batcher(max_batch=100, max_delay_ms=10, max_queue=128)
    due: list[str] = []
    for place, name in enumerate("ABCDE"):
        park(batcher, name, place * 0.004)
        due = names(batcher.tick(place * 0.004))
        if due:
            break
    assert due == ["ABCD"], "a later arrival put off the flush"


def test_the_next_deadline_is_exact() -> None:
    batcher = stage.batcher.DynamicBatcher(max_batch=4, max_delay_ms=10, max_queue=128)
    assert batcher.next_deadline() is None
    park(batcher, "A", 1.0, shape=(2,))
    park(batcher, "B", 2.0, shape=(1,))
    deadline = batcher.next_deadline()
    assert deadline == pytest.approx(1.010)
    assert names(batcher.tick(deadline)) == ["A"]
    assert batcher.next_deadline() == pytest.approx(2.010)


def test_rows_of_different_shapes_share_no_pass(parts: Any) -> None:
    batcher = parts.batcher(max_batch=3, max_delay_ms=10, max_queue=128)
    park(batcher, "A", 0.0, shape=(3, 64, 64))
    park(batcher, "BC", 0.001, shape=(3, 32, 32))
    park(batcher, "D", 0.002, shape=(3, 64, 64))
    batches = batcher.tick(0.002) + batcher.tick(0.020)
    assert names(batches) == ["AD", "BC"], "rows of different shapes were put into one pass"


def test_the_queue_has_a_bound(parts: Any) -> None:
    batcher = parts.batcher(max_batch=1000, max_delay_ms=10, max_queue=5)
    park(batcher, "ABCDE", 0.0)
    try:
        park(batcher, "F", 0.0)
    except stage.errors.QueueFull as exc:
        assert "5 of 5" in str(exc)
        return
    pytest.fail("the queue took more than it may hold")


def test_what_was_cancelled_costs_no_place_in_a_batch() -> None:
    batcher = stage.batcher.DynamicBatcher(max_batch=3, max_delay_ms=10, max_queue=128)
    items = park(batcher, "ABCD", 0.0)
    items[1].gone = True
    assert names(batcher.tick(0.0)) == ["ACD"]
    park(batcher, "E", 0.0)[0].gone = True
    assert names(batcher.tick(1.0)) == []
    assert batcher.next_deadline() is None


def test_a_flush_waits_for_nobody() -> None:
    batcher = stage.batcher.DynamicBatcher(max_batch=2, max_delay_ms=1e9, max_queue=128)
    park(batcher, "ABC", 0.0)
    assert names(batcher.flush()) == ["AB", "C"]


moves = st.lists(st.tuples(st.sampled_from(["submit", "tick", "cancel"]), st.integers(0, 12)), max_size=60)


@given(moves, st.integers(1, 4), st.integers(0, 20))
def test_nothing_is_lost_and_nothing_waits_too_long(moves: list[tuple[str, int]], max_batch: int, delay: int) -> None:
    batcher = stage.batcher.DynamicBatcher(max_batch, delay, max_queue=8)
    now, submitted, answered = 0.0, [], []
    for move, number in moves:
        now += number / 1000
        if move == "submit":
            item = Item("x", shape=number % 3)
            try:
                batcher.submit(item, now)
                submitted.append(item)
            except stage.errors.QueueFull:
                assert len(batcher.waiting) == 8
        elif move == "cancel" and submitted:
            submitted[number % len(submitted)].gone = True
        else:
            for batch in batcher.tick(now):
                assert 0 < len(batch) <= max_batch
                assert len({item.shape for item in batch}) == 1
                assert not any(item.gone for item in batch)
                answered += batch
            deadline = batcher.next_deadline()
            assert deadline is None or deadline > now
    answered += [item for batch in batcher.flush() for item in batch]
    assert len(answered) == len({id(item) for item in answered})
    assert {id(item) for item in submitted if not item.gone} <= {id(item) for item in answered}
