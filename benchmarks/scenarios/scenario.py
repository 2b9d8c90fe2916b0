"""The shape of a scenario: how it is run, told in a table and drawn. One file of this package defines each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

Result = dict[str, Any]
"""JSON-ready; the caller adds the stamp"""


@dataclass(frozen=True)
class Scenario:
    """`run` takes the seconds that each cell may last, and a function to tell progress with."""

    name: str
    idea: str
    model: str
    seconds: float
    run: Callable[[float, Callable[[str], object]], Result]
    table: Callable[[Result], Table]
    draw: Callable[[Result, Any], None] | None = None
    """draws on an empty matplotlib figure"""


def ms(seconds: float | None) -> str:
    """Seconds as a cell of a table."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
