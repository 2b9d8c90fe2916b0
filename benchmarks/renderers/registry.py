"""Which figures there are, and what is common to them. Knows no scenario."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.sheet import Sheet
from benchmarks.stamp import stamp_line

Result = dict[str, Any]
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


def stamped(sheet: Sheet, result: Result) -> str:
    """The table of a result, and its stamp. Raises `LookupError` if it has no rows."""
    if not sheet.rows:
        raise LookupError("no such rows")
    return sheet.markdown(stamp_line(result["stamp"]))


class NotMeasured(LookupError):
    """A result has no cell for what is asked."""


def the_cell(result: Result, **which: object) -> dict[str, Any]:
    """The one cell with these values, compared as words. Raises `NotMeasured` if there is none."""
    cells = [cell for cell in result["cells"] if all(f"{cell[key]}" == f"{value}" for key, value in which.items())]
    if not cells:
        raise NotMeasured(" ".join(f"{key} {value}" for key, value in which.items()))
    [cell] = cells
    return cell


def at(value: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What a path of keys leads to."""
    for key in path:
        value = value[key]
    return value
