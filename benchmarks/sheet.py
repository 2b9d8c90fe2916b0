"""Tables as plain words, shown on a screen or put into a document; and how figures are worded in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.table import Table


@dataclass(frozen=True)
class Sheet:
    """What one result says, a row a cell."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 2
    """columns on the left that hold names; the others hold figures"""

    def rich(self) -> Table:
        """For the screen; where two columns hold names, with a line between rows that begin differently."""
        table = Table(title=self.title)
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="left" if number < self.words else "right")
        for row, following in zip_longest(self.rows, self.rows[1:]):
            table.add_row(*row, end_section=self.words > 1 and following is not None and following[0] != row[0])
        return table

    def markdown(self, stamp: str) -> str:
        """For a document: the table, a blank line, and the stamp."""
        ruler = ["---"] * self.words + ["---:"] * (len(self.headings) - self.words)
        table = "\n".join(f"| {' | '.join(line)} |" for line in (self.headings, ruler, *self.rows))
        return f"{table}\n\n*{stamp}*"


def ms(seconds: float | None) -> str:
    """Seconds, or milliseconds where those read better."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def times(ratio: float) -> str:
    """A ratio with two digits that mean something."""
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def errors(counts: Mapping[str, int]) -> str:
    """What went wrong how often."""
    return ", ".join(f"{count} x {outcome}" for outcome, count in counts.items()) or "none"


def server_name(target: str) -> str:
    """A stage by its number, a peer in words."""
    stage, _, lane = target.partition("_")
    if stage.isdigit():
        return f"stage {stage}{', streaming' if lane else ''}"
    return target.replace("_", " ").replace("ten line", "ten-line")
