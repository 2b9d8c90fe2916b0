"""What a check says. Knows no check and no GPU."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One thing that was looked at."""

    check: str
    subject: str
    found: str
    passed: bool
    figures: dict[str, float] = field(default_factory=dict)
    """what was timed or counted, for the result; such a row means nothing where there is no GPU"""


Check = Callable[[str], Iterator[Row]]
"""takes a device, "cuda" or, for a rehearsal, "cpu" """


def agreeing(check: str, subject: str, wrong: float, tolerance: float, told: str = "") -> Row:
    """A row that passes if nothing is further off than the tolerance; NaN is."""
    return Row(check, subject, f"{told}off by {wrong:.1e} at most, {tolerance:.0e} allowed", wrong <= tolerance)
