"""From the events of a trace to who held a slot when: both kinds of passes, and the slots themselves."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.timeline import Held, in_slots, read_trace, timeline


def event(name: str, at: float, **args: Any) -> dict[str, Any]:
    """An instant; times in seconds."""
    return {"name": name, "ph": "i", "ts": at * 1e6, "args": args}


def span(name: str, begin: float, end: float, **args: Any) -> dict[str, Any]:
    return event(name, begin, **args) | {"ph": "X", "dur": (end - begin) * 1e6}


def static() -> list[dict[str, Any]]:
    """A batch of two and a straggler: ten steps of a second for a (4 tokens) and b (10), then two for c."""
    return [
        event("queued", 100.0, request_id="a"),
        event("queued", 100.0, request_id="b"),
        event("scheduled", 101.0, request_ids=["a", "b"]),
        event("queued", 103.0, request_id="c"),
        span("generate", 101.0, 111.0, request_ids=["a", "b"], steps=10),
        event("scheduled", 111.5, request_ids=["c"]),
        event("answered", 111.6, request_id="a", text=" 1 2 3"),
        event("answered", 111.7, request_id="b", text=" 1 2 3 4 5 6 7 8 9"),
        span("generate", 112.0, 114.0, request_ids=["c"], steps=2),
        event("answered", 114.5, request_id="c", text=" 7"),
    ]


STATIC = {"A": (" 1 2 3", 4), "B": (" 1 2 3 4 5 6 7 8 9", 10), "C": (" 7", 2)}


def test_a_batch_that_waits_for_its_slowest_holds_slots_for_nothing() -> None:
    assert timeline(static(), STATIC) == [
        Held("A", 4, queued=0.0, begin=1.0, last_token=5.0, end=11.0, slot=0),
        Held("B", 10, queued=0.0, begin=1.0, last_token=11.0, end=11.0, slot=1),
        Held("C", 2, queued=3.0, begin=11.5, last_token=14.0, end=14.0, slot=0),
    ]


def test_a_slot_changes_hands_at_any_step() -> None:
    """Two slots; a has two tokens, b four, and c takes a's slot in the step after."""
    batches = [["a", "b"], ["a", "b"], ["b", "c"], ["b", "c"]]
    events = [event("queued", 10.0, request_id=name) for name in ("a", "b")]
    for step, ids in enumerate(batches):
        begin = 11.0 + step
        events.append(event("scheduled", begin, request_ids=ids, step=step + 1))
        events.append(span("forward", begin, begin + 0.5, request_ids=ids))
        events += [event("piece", begin + 0.6, request_id=name, text=f" {name}{step}") for name in ids]
    events.append(event("queued", 11.5, request_id="c"))
    answers = {"A": (" a0 a1", 2), "B": (" b0 b1 b2 b3", 4), "C": (" c2 c3", 2)}
    assert timeline(events, answers) == [
        Held("A", 2, queued=0.0, begin=1.0, last_token=2.5, end=2.5, slot=0),
        Held("B", 4, queued=0.0, begin=1.0, last_token=4.5, end=4.5, slot=1),
        Held("C", 2, queued=1.5, begin=3.0, last_token=4.5, end=4.5, slot=0),
    ]


def test_durations_are_told_with_the_moments() -> None:
    cell = timeline(static(), STATIC)[0].cell()
    assert (cell["waited"], cell["held"], cell["idle"]) == (1.0, 10.0, 6.0)


def test_a_trace_that_lacks_something_is_refused() -> None:
    with pytest.raises(ValueError, match="no answer for D"):
        timeline(static(), STATIC | {"D": (" 8", 2)})
    with pytest.raises(ValueError, match="2 steps for C, which has 3 tokens"):
        timeline(static(), STATIC | {"C": (" 7", 3)})


def test_a_trace_of_a_killed_server_can_be_read() -> None:
    text = "[\n" + "".join(json.dumps(one) + ",\n" for one in static()) + '{"name": "queu'
    assert read_trace(text) == static()


intervals = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=12)


@given(intervals)
def test_no_slot_is_held_twice_and_none_is_added_while_one_is_free(spans: list[tuple[int, int]]) -> None:
    held = in_slots(Held(f"{n}", 1, 0, begin, begin, begin + length) for n, (begin, length) in enumerate(spans))
    for one in held:
        at_once = [other for other in held if other.begin <= one.begin < other.end]
        assert len({other.slot for other in at_once}) == len(at_once)
        assert one.slot <= len(at_once) + sum(other.slot < one.slot for other in at_once) - 1
