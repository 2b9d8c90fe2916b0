"""What one stage changes over another: `flo diff 01 02`.

Everything here is derived from the files themselves; only the idea and the parents come from `lineage.toml`. Faults
and READMEs are left out: each stage has its own.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax

from .catalog import Stage, find_faults, find_stage, stage_lines, summary


@dataclass(frozen=True)
class Difference:
    """File names relative to their stage, sorted."""

    changed: list[str]
    added: list[str]
    removed: list[str]
    carried: list[str]


def compare(before: Path, after: Path) -> Difference:
    """Sort the files of two stages by what became of them."""
    old, new = source_files(before), source_files(after)
    both = sorted(old & new)
    same = {name for name in both if (before / name).read_bytes() == (after / name).read_bytes()}
    changed = [name for name in both if name not in same]
    return Difference(changed, sorted(new - old), sorted(old - new), sorted(same))


def source_files(stage: Path) -> set[str]:
    """The files of a stage that belong to the comparison."""
    names = [path.relative_to(stage) for path in stage.rglob("*") if path.is_file()]
    left_out = {"faults", "__pycache__", "README.md"}
    return {name.as_posix() for name in names if not left_out & set(name.parts) and not name.name.startswith(".")}


def unified(before: Path, after: Path, name: str) -> str:
    """The whole unified diff of one file of two stages."""
    old, new = ((stage / name).read_text("utf-8").splitlines() for stage in (before, after))
    labels = f"{before.name}/{name}", f"{after.name}/{name}"
    return "\n".join(difflib.unified_diff(old, new, *labels, lineterm=""))


def show_diff(console: Console, before_name: str, after_name: str, root: Path | None = None) -> None:
    """Print how the second stage differs from the first."""
    where = {"root": root} if root else {}
    before, after = find_stage(before_name, **where), find_stage(after_name, **where)
    found = compare(before.path, after.path)
    console.print(f"{before.title} -> {after.title}", style="bold")
    if after.idea:
        console.print(f"The idea: {after.idea}", markup=False)
    lines = f"{stage_lines(after)} lines of code ({before.number} has {stage_lines(before)})"
    console.print(f"{lines}; parents of {after.number}: {', '.join(after.parents) or 'none'}")
    _list(console, "Carried over as they are", [", ".join(found.carried)] if found.carried else [])
    _list(console, "Added", [f"{name}{_origin(after, before, name)}" for name in found.added])
    _list(console, "Removed", [", ".join(found.removed)] if found.removed else [])
    _list(console, "Changed", [", ".join(found.changed)] if found.changed else [])
    for name in found.changed:
        console.print()
        _print_diff(console, unified(before.path, after.path, name))
    counts = (f"{stage.number} has {len(find_faults(stage))}" for stage in (before, after))
    console.print(f"\nFaults (not compared): {', '.join(counts)}.")


def _list(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(f"\n{title}:", style="bold")
    for line in lines:
        console.print(f"  {line}", markup=False)


def _origin(after: Stage, before: Stage, name: str) -> str:
    """What an added file is for, and which other parent it came from unchanged."""
    says = summary(after.path / name)
    for parent in after.parents:
        other = after.path.parent / parent / name
        if parent != before.name and other.is_file() and other.read_bytes() == (after.path / name).read_bytes():
            return f" (carried over from {parent}): {says}"
    return f": {says}" if says else ""


def _print_diff(console: Console, text: str) -> None:
    """In color for a person; for a pipe exactly as it is, so that it can be applied."""
    if console.is_terminal:
        console.print(Syntax(text, "diff", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        console.file.write(text + "\n")
