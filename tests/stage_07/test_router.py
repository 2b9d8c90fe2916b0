"""The router alone: numbers in, a core out."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.serving import Stage

stage = Stage("07_paged_attention")


def router(*loads: tuple[int, int], max_queue: int = 128) -> Any:
    """One with a core for each (waiting, running)."""
    made = stage.router.Router(len(loads), max_queue)
    for core, (waiting, running) in enumerate(loads):
        made.report(core, waiting, running)
    return made


def test_the_seeds_example_18_against_14() -> None:
    a_and_b = router((2, 10), (0, 14))
    assert [load.score for load in a_and_b.loads] == [18, 14]
    assert a_and_b.place() == 1, "B"


def test_what_was_sent_since_the_last_report_counts_as_waiting() -> None:
    two = router((0, 0), (0, 6))
    assert [two.place() for _ in range(6)] == [0, 0, 1, 0, 1, 0]
    two.report(0, 0, 4)
    assert two.loads[0].score == 4
    assert two.place() == 0


def test_a_core_that_is_not_ready_gets_nothing() -> None:
    two = router((0, 0), (5, 200))
    two.lost(0)
    assert two.place() == 1
    two.report(0, 0, 0)
    assert two.place() == 0


def test_room_is_what_may_still_wait() -> None:
    two = router((1, 9), (0, 0), max_queue=2)
    assert two.room() == 3
    assert [two.place() for _ in range(3)] == [1, 1, 0]
    assert two.room() == 0
    two.lost(1)
    two.report(0, 0, 12)
    assert two.room() == 2


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6), st.integers(1, 100))
def test_it_always_takes_a_least_loaded_core(loads: list[tuple[int, int]], requests: int) -> None:
    cores = router(*loads, max_queue=200)
    for _ in range(requests):
        least = min(load.score for load in cores.loads)
        before = [load.score for load in cores.loads]
        assert before[cores.place()] == least
