"""Figures of the stages with many models: batching, max_delay."""

from benchmarks.scenarios import batching, max_delay
from benchmarks.sheet import ms, times

from .registry import Result, at, figure, stamped, the_cell


@figure("batching")
def batching_table(result: Result, *targets: str) -> str:
    """Requests per second, latency and rows a pass at each number of users; of both stages, or of those named."""
    return stamped(batching.table(result, *targets), result)


@figure("batching")
def batching_ratio(result: Result, target: str, other: str, number: str) -> str:
    """How many times one stage's requests per second are another's: `batching_ratio 05 04 32`."""
    one, two = (the_cell(result, target=name, users=number)["requests_per_second"] for name in (target, other))
    return times(one / two)


@figure("max_delay")
def max_delay_table(result: Result, *rates: str) -> str:
    """Latency and rows a pass for each delay, at all rates of arrivals or at those named."""
    return stamped(max_delay.table(result, *rates), result)


@figure("max_delay")
def max_delay_value(result: Result, rate: str, delay: str, *path: str) -> str:
    """One value of a cell: `max_delay_value 150 5 latency p99`."""
    value = at(the_cell(result, rate=rate, delay=delay), path)
    return ms(value) if "latency" in path else f"{value:.1f}"
