"""What a family tree of stages has to obey; each function returns the complaints it has, none being good."""

import ast
import sys
import tomllib
from pathlib import Path
from typing import Any


def read_tree(stages: Path) -> dict[str, dict[str, Any]]:
    """`lineage.toml` as a dictionary."""
    return tomllib.loads((stages / "lineage.toml").read_text(encoding="utf-8"))


def tree_complaints(stages: Path) -> list[str]:
    """Every stage is in the tree, with older parents, one sentence of idea, and a true list of carried files."""
    tree, complaints = read_tree(stages), []
    folders = {path.name for path in stages.glob("[0-9][0-9]_*")}
    complaints += [f"{name}: in lineage.toml, but there is no such stage" for name in sorted(set(tree) - folders)]
    complaints += [f"{name}: not in lineage.toml" for name in sorted(folders - set(tree))]
    for name in sorted(folders & set(tree)):
        entry = tree[name]
        parents, idea, carried = entry["parents"], entry["idea"], set(entry["carried"])
        complaints += [
            f"{name}: parent {parent} is no older stage"
            for parent in parents
            if parent not in folders or parent >= name
        ]
        if not idea.endswith(".") or ". " in idea:
            complaints.append(f"{name}: the idea must be one sentence")
        files = [path.name for path in (stages / name).glob("*.py")] + ["faults/__init__.py"]
        same = {
            file
            for file in files
            for parent in parents
            if (stages / parent / file).is_file()
            and (stages / name / file).is_file()
            and (stages / parent / file).read_bytes() == (stages / name / file).read_bytes()
        }
        complaints += [f"{name}: {file} is not byte for byte its parent's" for file in sorted(carried - same)]
        complaints += [f"{name}: {file} is its parent's, but not listed as carried" for file in sorted(same - carried)]
    return complaints


def import_complaints(stage: Path, ours: set[str]) -> list[str]:
    """A stage imports the standard library, third-party packages and its own files by relative imports."""
    complaints = []
    for path in sorted(stage.rglob("*.py")):
        depth = len(path.relative_to(stage).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                if node.level > depth:
                    complaints.append(f"{path.name}:{node.lineno}: imports from outside the stage")
                names = [node.module or ""] if node.level == 0 else []
            for name in names:
                top = name.split(".")[0]
                if top in ours and top not in sys.stdlib_module_names:
                    complaints.append(f"{path.name}:{node.lineno}: imports {name}, which is this repository's")
    return complaints
