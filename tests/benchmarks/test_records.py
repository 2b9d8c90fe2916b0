"""What many records add up to: percentiles, rates, errors; and that one wrong answer spoils a cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.records import Record, Run, WrongAnswers, percentile, server_side, summarize


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, percent) for percent in (0, 1, 50, 95, 99, 100)] == [1, 1, 50, 95, 99, 100]
    assert percentile([3.0, 1.0], 50) == 1.0
    assert percentile([], 50) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_at_least_so_many_values_are_no_larger(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values)


def test_rates_count_what_ended_in_the_window_and_latencies_what_began_in_it() -> None:
    records = [Record(10.0, 11.0, "ok", 5), Record(11.0, 12.0, "ok", 7), Record(11.5, 20.0, "ok", 100)]
    cell = summarize([Run(records, began=10.0, window=4.0)])
    assert (cell["requests_per_second"], cell["tokens_per_second"]) == (0.5, 3.0)
    assert (cell["completed"], cell["latency"]["p50"], cell["latency"]["max"]) == (3, 1.0, 8.5)


def test_runs_of_a_cell_are_pooled() -> None:
    one = Run([Record(0.0, 1.0, "ok", 10)], began=0.0, window=2.0)
    other = Run([Record(100.0, 103.0, "ok", 20)], began=100.0, window=3.0)
    cell = summarize([one, other])
    assert (cell["seconds"], cell["tokens_per_second"], cell["latency"]["max"]) == (5.0, 6.0, 3.0)


def test_streams_tell_their_first_piece_and_the_gaps_between_pieces() -> None:
    cell = summarize([Run([Record(0.0, 4.0, "ok", 3, pieces=(1.0, 1.5, 3.5))], began=0.0, window=5.0)])
    assert (cell["ttft"]["p50"], cell["inter_token"]["p50"], cell["inter_token"]["max"]) == (1.0, 0.5, 2.0)


def test_errors_are_counted_by_kind_and_kept_out_of_latencies() -> None:
    outcomes = ["ok", "503", "503", "timeout"]
    cell = summarize([Run([Record(0.0, 1.0, outcome) for outcome in outcomes], began=0.0, window=1.0)])
    assert (cell["requests"], cell["completed"], cell["errors"]) == (4, 1, {"503": 2, "timeout": 1})


def test_nothing_measured_is_no_crash() -> None:
    cell = summarize([Run([], began=0.0, window=0.0)])
    assert (cell["requests"], cell["requests_per_second"], cell["latency"]["p50"]) == (0, 0.0, None)


def test_a_wrong_answer_spoils_the_cell() -> None:
    records = [Record(0.0, 1.0, "ok"), Record(0.0, 1.0, "wrong", detail="'Count from 3 to 4:' -> ' 3 5'")]
    with pytest.raises(WrongAnswers, match=r"1 of 2 .* ' 3 5'"):
        summarize([Run(records, began=0.0, window=1.0)])


def test_waiting_is_the_growth_of_the_servers_counters_per_request() -> None:
    before = {"requests": {"completed": 10}, "queue_seconds": 5.0, "forward_passes": 100, "row_steps": 100}
    after = {"requests": {"completed": 14}, "queue_seconds": 7.0, "forward_passes": 110, "row_steps": 125}
    assert server_side([(before, after)]) == {"queue_wait": 0.5, "rows_per_forward": 2.5}
    assert server_side([(None, None)]) == {"queue_wait": None, "rows_per_forward": None}
    assert server_side([(before, before)]) == {"queue_wait": None, "rows_per_forward": None}
