"""Figures of what a KV cache's memory is spent on: pages."""

from benchmarks.scenarios import pages

from .registry import Result, at, figure, stamped, the_cell


@figure("pages")
def pages_table(result: Result) -> str:
    """How much of a memory holds tokens, by how room in it is given out."""
    return stamped(pages.table(result), result)


@figure("pages")
def pages_value(result: Result, way: str, *path: str) -> str:
    """One value: `pages_value full_length of_reserved`, `pages_value exact_length gap asked`."""
    value = at(the_cell(result, way=way.replace("_", " ")), path)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.0%}" if path[0].startswith("of_") or path == ("again",) else f"{value:.1f}"
