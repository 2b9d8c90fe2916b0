"""Figures of the stages with many models: batching, max_delay, triton_batcher, streams, zipf."""

from benchmarks.scenarios import batching, max_delay, streams, triton_batcher, zipf
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


@figure("triton_batcher")
def triton_batcher_table(result: Result, *rates: str) -> str:
    """Latency and rows a pass of both batchers for each delay, at all rates of arrivals or at those named."""
    return stamped(triton_batcher.table(result, *rates), result)


@figure("triton_batcher")
def triton_batcher_value(result: Result, target: str, rate: str, delay: str, *path: str) -> str:
    """One value of a cell: `triton_batcher_value Triton 200 5 latency p99`; a delay may be "off"."""
    value = at(the_cell(result, target=target, rate=rate, delay=delay), path)
    return ms(value) if "latency" in path else f"{value:.1f}"


@figure("streams")
def streams_table(result: Result) -> str:
    """What a token takes in each quarter of a stream, without a cache and with one."""
    return stamped(streams.table(result), result)


@figure("streams")
def streams_value(result: Result, target: str, quarter: str) -> str:
    """A token of one quarter, counted from 1: `streams_value 03 4`."""
    return ms(the_cell(result, target=target)["seconds_per_token"][int(quarter) - 1])


@figure("streams")
def streams_growth(result: Result, target: str) -> str:
    """How many times longer a token takes in the last quarter than in the first: `streams_growth 03`."""
    return times(the_cell(result, target=target)["growth"])


@figure("zipf")
def zipf_table(result: Result, *slots: str) -> str:
    """Hit rate and latency of each stage, with every number of slots or with those named."""
    return stamped(zipf.table(result, *slots), result)


@figure("zipf")
def zipf_value(result: Result, target: str, slots: str, *path: str) -> str:
    """One value of a cell: `zipf_value 04 2 hit_rate`, `zipf_value 04 2 latency p99`."""
    value = at(the_cell(result, target=target, slots=slots), path)
    return f"{value:.0%}" if path == ("hit_rate",) else ms(value)
