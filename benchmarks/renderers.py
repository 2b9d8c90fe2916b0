"""The figures that READMEs and notebooks may show, by name: pure functions from a result to Markdown.

A block (more than one line) ends with the stamp of its result. A value is a few words for the middle of a sentence; the
table it belongs to is nearby and has the stamp. In a document: `<!-- figures: users_table ten_line_server 01 -->`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from .scenarios import gil
from .scenarios.scenario import Result, ms
from .stamp import stamp_line

Renderer = Callable[..., str]
"""takes the result and the words that follow the name"""
RENDERERS: dict[str, tuple[str, Renderer]] = {}
"""name of a figure -> name of its result, and what renders it"""


def figure(result: str) -> Callable[[Renderer], Renderer]:
    """Register a renderer under its own name, for the result of that name."""

    def register(renderer: Renderer) -> Renderer:
        RENDERERS[renderer.__name__] = result, renderer
        return renderer

    return register


@figure("users")
def users_table(result: Result, *targets: str) -> str:
    """Requests/s, tokens/s, latency and queue wait at each number of users; of all servers, or of those named."""
    cells = [cell for cell in result["cells"] if not targets or cell["target"] in targets]
    return block(
        ("users", "server", "requests/s", "tokens/s", "latency p50", "p95", "p99", "wait for a pass"),
        [
            (
                f"{cell['users']}",
                server_name(cell["target"]),
                f"{cell['requests_per_second']:.1f}",
                f"{cell['tokens_per_second']:.0f}",
                *(ms(cell["latency"][name]) for name in ("p50", "p95", "p99")),
                ms(cell["queue_wait"]),
            )
            for cell in cells
        ],
        result,
    )


@figure("users")
def users_value(result: Result, target: str, users: str, *path: str) -> str:
    """One value of a cell: `users_value 01 50 latency p95`, or `users_value 01 50 tokens_per_second`."""
    [cell] = [cell for cell in result["cells"] if (cell["target"], f"{cell['users']}") == (target, users)]
    value: Any = cell
    for key in path:
        value = value[key]
    return f"{value:,.0f}" if path[-1].endswith("_per_second") or isinstance(value, int) else ms(value)


@figure("users")
def users_ratio(result: Result, target: str, other: str, users: str, name: str = "tokens_per_second") -> str:
    """How many times one server's rate is another's, at a number of users."""
    rates = {cell["target"]: cell[name] for cell in result["cells"] if f"{cell['users']}" == users}
    return times(rates[target] / rates[other])


@figure("gil")
def gil_table(result: Result) -> str:
    """How late an async route answers, and how late the event loop wakes, with the model in a child and in a thread."""
    return block(
        ("users", "server", "route p50", "p99", "max", "loop late p50", "p99", "max", "tokens/s"),
        [
            (
                f"{cell['users']}",
                server_name(cell["server"]),
                *(ms(cell[look][name]) for look in ("heartbeat", "lag") for name in ("p50", "p99", "max")),
                f"{cell['tokens_per_second']:.0f}",
            )
            for cell in result["cells"]
        ],
        result,
    )


@figure("gil")
def gil_value(result: Result, server: str, users: str, look: str, name: str) -> str:
    """One value of a cell: `gil_value model_in_child 16 lag p99`."""
    [cell] = [cell for cell in result["cells"] if (cell["server"], f"{cell['users']}") == (server, users)]
    return ms(cell[look][name])


@figure("gil")
def gil_ratio(result: Result, server: str, users: str, look: str, name: str) -> str:
    """How many times longer others wait than with the model in a child: `gil_ratio model_in_thread 16 lag p99`."""
    return times(gil.ratio(result, server, int(users), look, name))


def block(headings: Sequence[str], rows: Sequence[Sequence[str]], result: Result) -> str:
    """A Markdown table, a blank line, and the stamp."""
    lines = [headings, ["---", "---", *["---:"] * (len(headings) - 2)], *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n*{stamp_line(result['stamp'])}*"


def server_name(target: str) -> str:
    """A stage by its number, a peer in words."""
    return f"stage {target}" if target.isdigit() else target.replace("_", " ").replace("ten line", "ten-line")


def times(ratio: float) -> str:
    """A ratio with two digits that mean something."""
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"
