"""Figures of servers under load: users, smollm2, open_loop, gil."""

from benchmarks.scenarios import gil, open_loop, users
from benchmarks.sheet import ms, times

from .registry import Result, at, figure, stamped, the_cell


@figure("users")
def users_table(result: Result, *targets: str) -> str:
    """Throughput, latency and wait at each number of users; of all servers, or of those named (03_stream: its lane)."""
    return stamped(users.table(result, *targets), result)


@figure("users")
def users_value(result: Result, target: str, number: str, *path: str) -> str:
    """One value of a cell: `users_value 01 50 latency p95`, or `users_value 01 50 tokens_per_second`."""
    value = at(the_cell(result, target=target, users=number), path)
    return f"{value:,.0f}" if path[-1].endswith("_per_second") or isinstance(value, int) else ms(value)


@figure("users")
def users_ratio(result: Result, target: str, other: str, number: str, *path: str) -> str:
    """How many times one server's value is another's: `users_ratio 02 01 50`, `users_ratio 01 02 50 latency p50`."""
    path = path or ("tokens_per_second",)
    one, two = (at(the_cell(result, target=name, users=number), path) for name in (target, other))
    return times(one / two)


@figure("smollm2")
def smollm2_table(result: Result, *targets: str) -> str:
    """The same table as `users_table`, with a real model."""
    return users_table(result, *targets)


@figure("smollm2")
def smollm2_value(result: Result, target: str, number: str, *path: str) -> str:
    """One value of a cell: `smollm2_value 02 16 tokens_per_second`."""
    return users_value(result, target, number, *path)


@figure("smollm2")
def smollm2_ratio(result: Result, target: str, other: str, number: str, *path: str) -> str:
    """How many times one server's value is another's: `smollm2_ratio 02 01 16`."""
    return users_ratio(result, target, other, number, *path)


@figure("open_loop")
def open_loop_table(result: Result) -> str:
    """How long people wait for the first text and for all of it, under the same arrivals at every server."""
    return stamped(open_loop.table(result), result)


@figure("open_loop")
def open_loop_value(result: Result, target: str, *path: str) -> str:
    """One value of a server: `open_loop_value 03_stream first p50`, `... latency p95`, `... capacity`, `... load`."""
    value = at(the_cell(result, target=target), path)
    return {"capacity": f"{value:.1f}", "load": f"{value:.0%}"}[path[0]] if len(path) == 1 else ms(value)


@figure("open_loop")
def open_loop_rate(result: Result) -> str:
    """How many people arrive in a second."""
    return f"{result['rate']:.1f}"


@figure("open_loop")
def open_loop_ratio(result: Result, slow: str = "02", quick: str = "03_stream", name: str = "p50") -> str:
    """How many times longer one server's full answers take than another's first text: `open_loop_ratio 02`."""
    return times(the_cell(result, target=slow)["latency"][name] / the_cell(result, target=quick)["first"][name])


@figure("gil")
def gil_table(result: Result) -> str:
    """How late an async route answers, and how late the event loop wakes, with the model in a child and in a thread."""
    return stamped(gil.table(result), result)


@figure("gil")
def gil_value(result: Result, server: str, number: str, look: str, name: str) -> str:
    """One value of a cell: `gil_value model_in_child 16 lag p99`."""
    return ms(the_cell(result, server=server, users=number)[look][name])


@figure("gil")
def gil_ratio(result: Result, server: str, number: str, look: str, name: str) -> str:
    """How many times longer others wait than with the model in a child: `gil_ratio model_in_thread 16 lag p99`."""
    return times(gil.ratio(result, server, int(number), look, name))
