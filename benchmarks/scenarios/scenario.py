"""The shape of a scenario: how it is run, told in a table and drawn. One file of this package defines each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.sheet import Sheet

Result = dict[str, Any]
"""JSON-ready; the caller adds the stamp"""


@dataclass(frozen=True)
class Scenario:
    """`run` takes the seconds that each cell may last, and a function to tell progress with.

    It raises `WrongAnswers`, or `ModelMissing` if it needs a model or an environment that is not there.
    """

    name: str
    idea: str
    model: str
    """what the stamp says, unless the result lists its "models" """
    seconds: float
    run: Callable[[float, Callable[[str], object]], Result]
    table: Callable[[Result], Sheet]
    draw: Callable[[Result, Any], None] | None = None
    """draws on an empty matplotlib figure"""
    quick: bool = True
    """whether half a second a cell is enough for it to show anything"""
