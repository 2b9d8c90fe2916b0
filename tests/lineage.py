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
        found = ((node, name) for node in ast.walk(ast.parse(path.read_text("utf-8"))) for name in imported(node))
        for node, name in found:
            where, top = f"{path.name}:{getattr(node, 'lineno', 0)}", name.split(".")[0]
            if len(name) - len(name.lstrip(".")) > depth:
                complaints.append(f"{where}: imports from outside the stage")
            if top in ours and top not in sys.stdlib_module_names:
                complaints.append(f"{where}: imports {name}, which is this repository's")
    return complaints


def imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports, or that a call of `import_module` does, if it says which."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__"):
        return [text for argument in node.args[:1] if (text := beginning(argument))]
    return []


def beginning(text: ast.expr) -> str:
    """A string as far as it is known: all of a constant, the beginning of an f-string."""
    if isinstance(text, ast.JoinedStr) and text.values:
        text = text.values[0]
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
