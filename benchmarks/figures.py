"""Puts measured figures into documents, between markers, so that nobody types a number into prose.

`<!-- figures: NAME WORDS -->` and `<!-- /figures -->` enclose what `renderers.py` makes of a result. `python -m
benchmarks.figures` rewrites every Markdown file and notebook of the repository; `--check` only lists what is stale,
plots included, and exits 1 if anything is. `?NAME` is a dash until what it shows has been measured.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .plots import is_stale
from .renderers import RENDERERS
from .renderers.registry import NotMeasured
from .scenarios import SCENARIOS
from .stamp import RESULTS, ROOT, read_result

OPENING = re.compile(r"<!-- figures: (?!NAME\b)(.+?) -->")
FIGURE = re.compile(OPENING.pattern + r"(.*?)<!-- /figures -->", re.DOTALL)
NOT_YET = "-"
"""what `?NAME` shows until there is a measurement"""
SKIPPED = {"build", "results", "node_modules", "__pycache__"}


class BadMarker(ValueError):
    """A marker that cannot be filled; the message says why."""


def render(text: str, results: Path = RESULTS) -> str:
    """`text` with every figure as it should be. Raises `BadMarker`."""
    if len(OPENING.findall(text)) != len(FIGURE.findall(text)):
        raise BadMarker("a figures marker is not closed before the next one")
    return FIGURE.sub(lambda found: _figure(found[1].split(), results), text)


def _figure(words: list[str], results: Path) -> str:
    name, *arguments = words
    optional, name = name.startswith("?"), name.removeprefix("?")
    if name not in RENDERERS:
        raise BadMarker(f"no figure {name!r}; there are {', '.join(RENDERERS)}")
    source, renderer = RENDERERS[name]
    try:
        figure = renderer(read_result(source, results), *arguments)
    except (FileNotFoundError, NotMeasured) as exc:
        if not optional:
            why = (
                f"there is no {source}.json"
                if isinstance(exc, FileNotFoundError)
                else f"{source}.json has no such figure"
            )
            raise BadMarker(f"{' '.join(words)}: {why}; `python -m benchmarks {source}` makes it ({exc!r})") from None
        figure = NOT_YET
    except (LookupError, ValueError, TypeError) as exc:
        raise BadMarker(f"{' '.join(words)}: {source}.json has no such figure ({exc!r})") from exc
    middle = f"\n\n{figure}\n\n" if "\n" in figure else figure
    return f"<!-- figures: {' '.join(words)} -->{middle}<!-- /figures -->"


def render_notebook(text: str, results: Path = RESULTS) -> str:
    """The same for the Markdown cells of a notebook; one without stale figures comes back byte for byte."""
    notebook: dict[str, Any] = json.loads(text)
    changed = False
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            before = "".join(cell["source"])
            after = render(before, results)
            if after != before:
                changed, cell["source"] = True, after.splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n" if changed else text


def documents(root: Path) -> Iterator[Path]:
    """Every Markdown file and notebook below `root`, hidden and generated directories left out."""
    for directory, inner, files in os.walk(root):
        inner[:] = sorted(name for name in inner if name not in SKIPPED and not name.startswith("."))
        yield from (Path(directory, name) for name in sorted(files) if name.endswith((".md", ".ipynb")))


def stale(root: Path, results: Path, rewrite: bool = False) -> list[str]:
    """One line for each document or plot that is not as its result says; `rewrite` mends the documents first."""
    found: list[str] = []
    for path in documents(root):
        text, where = path.read_text(encoding="utf-8"), path.relative_to(root)
        try:
            fresh = (render_notebook if path.suffix == ".ipynb" else render)(text, results)
        except BadMarker as exc:
            found.append(f"{where}: {exc}")
            continue
        if fresh != text and rewrite:
            path.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            found.append(f"{where}: stale; `python -m benchmarks.figures` rewrites it")
    for name, scenario in SCENARIOS.items():
        if scenario.draw and (results / f"{name}.json").exists() and is_stale(name, results):
            found.append(f"{name}.png: not drawn from {name}.json; `python -m benchmarks.plots` draws it")
    return found


def main() -> int:
    """Rewrite or check the whole repository."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description="Put figures into documents.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if anything is stale")
    problems = stale(ROOT, RESULTS, rewrite=not parser.parse_args().check)
    print("\n".join(problems) or "all figures are as measured")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
