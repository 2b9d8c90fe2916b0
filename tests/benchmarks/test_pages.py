"""Why pages: gaps that nothing fits into, reservations that stand empty, and the end of a block."""

from itertools import chain, islice, repeat

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scenarios import pages
from benchmarks.scenarios.pages import Asked, Blocks, Contiguous, Line


def test_three_free_slots_in_a_row_of_gaps_are_no_room_for_three() -> None:
    line = Line(10)
    for name, size in {"A": 1, "B": 3, "C": 2, "D": 3, "E": 1}.items():
        assert line.reserve(name, size)
    line.release("A")
    line.release("C")
    assert line.gaps() == [(0, 1), (4, 2)]
    assert not line.reserve("F", 3)
    assert line.reserve("G", 2) and line.held["G"] == (4, 2)
    line.release("B")
    assert line.gaps() == [(0, 4)]
    assert line.reserve("F", 3) and line.held["F"] == (0, 3)


def test_a_refusal_says_what_was_free() -> None:
    memory = Contiguous(pages.exact, slots=100)
    requests = [Asked(1, length, 1) for length in (30, 30, 30)]
    assert all(memory.admit(request) for request in requests)
    memory.end(requests[1])
    assert not memory.admit(Asked(1, 35, 1))
    assert memory.stuck == {"asked": 35, "free": 40, "gaps": 2, "largest": 30}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=40))
def test_no_two_reservations_overlap_and_gaps_are_what_is_left(turns: list[tuple[bool, int]]) -> None:
    line = Line(40)
    for number, (leave, size) in enumerate(turns):
        if leave and line.held:
            line.release(min(line.held))
        else:
            largest = max((length for _, length in line.gaps()), default=0)
            assert line.reserve(number, size) == (size <= largest)
        taken = [slot for begin, length in [*line.held.values(), *line.gaps()] for slot in range(begin, begin + length)]
        assert sorted(taken) == list(range(40))


def test_what_is_reserved_covers_what_will_be() -> None:
    for request in islice(pages.crowd(), 500):
        assert 0 < request.prompt == request.tokens < request.length <= pages.CONTEXT
        assert request.length == pages.exact(request) <= pages.power_of_two(request) < 2 * request.length
        assert pages.full_length(request) == pages.CONTEXT


def test_blocks_waste_less_than_one_each_and_who_gives_up_its_place_comes_back() -> None:
    memory, asked = Blocks(640), [Asked(20, 300, 20) for _ in range(6)]
    most = 0
    for running in pages.steps(memory, chain(asked, repeat(Asked(1, 9999, 9999))), 2000):
        assert max(memory.waste(), default=0) < pages.BLOCK
        assert sum(request.tokens for request in running) <= memory.reserved <= 640
        most = max(most, len(running))
    assert most == 6 and memory.again > 0
    assert all(request.tokens == request.length for request in asked)


def test_each_way_wastes_less_than_the_one_before_and_gaps_need_varying_sizes() -> None:
    full, power, exact, blocks = cells = [pages.measure(way, 400, 100) for way in pages.WAYS]
    shares = [cell["of_memory"] for cell in cells]
    assert shares == sorted(shares) and shares[-1] < 1
    assert 0.1 < full["of_reserved"] < 0.4 and blocks["of_reserved"] > 0.9
    assert blocks["waste_most"] < pages.BLOCK
    assert full["gap"] is None and blocks["gap"] is None
    for cell in (power, exact):
        assert cell["gap"]["largest"] < cell["gap"]["asked"] <= cell["gap"]["free"]
