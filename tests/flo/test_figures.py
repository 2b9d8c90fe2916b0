"""The tour's arithmetic, its remarks and its table."""

import io

import pytest
from rich.console import Console

from flo.asking import Ask, Reply
from flo.figures import Figures, measure, tour_table
from flo.visits import VISITS, basic

BEFORE = {"passes": 1, "forward_passes": 8, "row_steps": 8, "idle_row_steps": 0, "positions_attended": 80}
AFTER: dict[str, float] = {"passes": 4, "forward_passes": 28, "row_steps": 68, "idle_row_steps": 10}
AFTER |= {"positions_attended": 680, "rows_per_forward": 68 / 28}


def crowd(*seconds: float, first: float | None = None) -> list[tuple[Ask, Reply]]:
    return [(Ask("/", {}), Reply(200, "x", each, first)) for each in seconds]


def test_figures_are_of_the_crowd_alone() -> None:
    after = {**AFTER, "busy_rows": 68 / 28 / 16, "busy_time": 0.5}
    figures = measure("01_x", crowd(1.0, 2.0, 4.0), 10.0, BEFORE, after)
    assert (figures.requests, figures.requests_per_second) == (3, 0.3)
    assert (figures.passes, figures.forward_passes, figures.rows_per_forward) == (3, 20, 3.0)
    assert figures.tokens_per_second == 5.0  # 60 row-steps, 10 of them idle, in 10 s
    assert (figures.latency_min, figures.latency_p50, figures.latency_max) == (1.0, 2.0, 4.0)
    assert figures.busy_rows == pytest.approx(3 / 16)
    assert figures.capacity == pytest.approx(16)
    assert (figures.ttft_p50, figures.busy_time) == (None, None)
    assert figures.fill("{idle_row_steps:.0f} of {row_steps:.0f}") == "10 of 60"


def test_time_in_forward_is_the_crowds_where_the_server_tells() -> None:
    before, after = BEFORE | {"forward_seconds": 2.0}, AFTER | {"busy_rows": 0.1, "forward_seconds": 10.0}
    assert measure("01_x", crowd(1.0, first=0.2), 10.0, before, after).busy_time == 0.8
    assert measure("01_x", crowd(1.0, first=0.2), 5.0, before, after).busy_time == 1.0
    assert measure("01_x", crowd(1.0, first=0.2), 10.0, before, after).ttft_p50 == 0.2


def test_a_stage_that_counts_nothing_has_no_figures_of_it() -> None:
    figures = measure("09_x", [], 0.0, {}, {})
    assert (figures.tokens_per_second, figures.forward_passes, figures.busy_rows) == (None, None, None)


def test_the_table_has_a_row_a_stage() -> None:
    rows = [
        Figures("01_single_request", asked=5, requests=5, requests_per_second=2.5, forward_passes=40, busy_rows=1 / 16),
        Figures("02_static_batching", failed=True),
        Figures("03_continuous_streaming", asked=5, wrong=2, requests=5, ttft_p50=0.0301),
        Figures("04_lru_models", asked=5, requests=5, judged=False),
    ]
    console = Console(file=io.StringIO(), width=110)
    console.print(tour_table(rows))
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    cells = [row.split() for row in text.splitlines() if row.strip()[:1] == "0"]
    assert cells == [
        ["01", "single", "request", "5/5", "2.5", "-", "0", "-", "40", "6%", "-"],
        ["02", "static", "batching", "failed"],
        ["03", "continuous", "streaming", "3/5", "0.0", "-", "0", "30", "-", "-", "-"],
        ["04", "lru", "models", "5/5", "?", "0.0", "-", "0", "-", "-", "-", "-"],
    ]


@pytest.mark.parametrize("name", VISITS)
def test_every_remark_can_be_filled_in(name: str) -> None:
    residency = dict.fromkeys(("hits", "misses", "loads", "evictions", "load_seconds"), 3)
    after = {**AFTER, **residency, "busy_rows": 0.1, "forward_seconds": 5.0}
    figures = measure(name, crowd(1.0, first=0.5), 10.0, BEFORE, after)
    for remark in VISITS[name].notice:
        assert not {"{", "?"} & set(figures.fill(remark))


@pytest.mark.parametrize("name", VISITS)
def test_remarks_survive_a_crowd_that_got_no_answer(name: str) -> None:
    figures = measure(name, [], 0.0, {}, {})
    assert all("{" not in figures.fill(remark) for remark in VISITS[name].notice)
    assert figures.fill("after {ttft_p50:.2f} s, {hits:.0f} hits") == "after ? s, ? hits"


def test_users_ask_different_things_of_different_lengths() -> None:
    asks = [basic(user, number) for user in range(10) for number in range(3)]
    assert len({str(question.body) for question in asks}) == 30
    assert {len((question.expected or "").split()) for question in asks} == set(range(4, 23, 2))
    assert all(int((question.expected or "").split()[-1]) <= 99 for question in asks)
