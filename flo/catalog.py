"""What there is: the stages, their place in the family tree, their faults, their size.

Reads files and parses them; imports no stage, so that it is instant and never loads torch.
"""

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from .errors import Unknown

ROOT = Path(__file__).resolve().parents[1]
STAGES = ROOT / "stages"


@dataclass(frozen=True)
class Stage:
    """One directory under `stages/`, and what `lineage.toml` says of it."""

    path: Path
    idea: str = ""
    parents: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    """flags with which it starts at once, where it would otherwise make itself fast first"""

    @property
    def name(self) -> str:
        """Such as "01_single_request"."""
        return self.path.name

    @property
    def number(self) -> str:
        """Such as "01"."""
        return self.name.partition("_")[0]

    @property
    def title(self) -> str:
        """Such as "01 single request"."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Fault:
    """What a fault file says of a fault or, with `fix` set, of a naive fix in it."""

    stage: str
    name: str
    wrong: str
    user_sees: str = ""
    seen_in_the_wild: str = ""
    test: str = ""
    message: str = ""
    fixes: tuple["Fault", ...] = field(default=())


def nearest(word: str, known: list[str]) -> str:
    """The end of an error message: the nearest known name, or all of them."""
    near = get_close_matches(word, known, 1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known) or 'none'}"


def find_stages(root: Path = STAGES) -> list[Stage]:
    """All stages that exist, in order."""
    lineage_file = root / "lineage.toml"
    lineage = tomllib.loads(lineage_file.read_text("utf-8")) if lineage_file.exists() else {}
    found: list[Stage] = []
    for path in sorted(root.glob("[0-9][0-9]_*/__main__.py")):
        entry = lineage.get(path.parent.name, {})
        listed = {key: tuple(entry.get(key, ())) for key in ("parents", "carried", "quick")}
        found.append(Stage(path.parent, entry.get("idea", ""), **listed))
    return found


def find_stage(word: str, root: Path = STAGES) -> Stage:
    """The stage that "01", "1", "01_single_request" or "single_request" stands for. Raises `Unknown`."""
    stages = find_stages(root)
    wanted = word.strip().rstrip("/").rpartition("/")[2].replace("-", "_").replace(" ", "_").lower()
    for stage in stages:
        if wanted in (stage.name, stage.number, stage.number.lstrip("0"), stage.name.partition("_")[2]):
            return stage
    # a name is compared both with and without its number, and the answer always has it
    names = {name: stage.name for stage in stages for name in (stage.name, stage.name.partition("_")[2])}
    near = get_close_matches(wanted, list(names), 1, cutoff=0.5)
    raise Unknown(f"no stage {word!r}: {nearest(names[near[0]] if near else word, [stage.name for stage in stages])}")


def find_faults(stage: Stage) -> list[Fault]:
    """The faults of a stage, read from its `faults/*.py` without importing them."""
    return [read_fault(path, stage.name) for path in sorted((stage.path / "faults").glob("[!_]*.py"))]


def check_fault(stage: Stage, word: str) -> str:
    """`word` as it is, if it names a fault ("a_fault") or a naive fix ("a_fault:a_fix"). Raises `Unknown`."""
    name, _, fix = word.partition(":")
    faults = {fault.name: fault for fault in find_faults(stage)}
    if name not in faults:
        raise Unknown(f"no fault {name!r} in {stage.name}: {nearest(name, list(faults))}")
    fixes = [variant.name for variant in faults[name].fixes]
    if ":" in word and fix not in fixes:
        raise Unknown(f"no naive fix {fix!r} of {name}: {nearest(fix, fixes)}")
    return word


def read_fault(path: Path, stage: str) -> Fault:
    """What one fault file says: its docstring, `TEST`, `MESSAGE`, and the naive fixes that `NAIVE_FIXES` names."""
    tree = ast.parse(path.read_text("utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    constants = _constants(tree.body, {})
    fixes: list[Fault] = []
    naive = _assigned(tree.body).get("NAIVE_FIXES")
    if isinstance(naive, ast.Dict):
        for key, value in zip(naive.keys, naive.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Name) and value.id in classes:
                fix = classes[value.id]
                fixes.append(_fault(fix, stage, str(key.value), _constants(fix.body, constants)))
    return _fault(tree, stage, path.stem, constants, tuple(fixes))


def _fault(
    node: ast.Module | ast.ClassDef, stage: str, name: str, constants: dict[str, str], fixes: tuple[Fault, ...] = ()
) -> Fault:
    paragraphs = [" ".join(text.split()) for text in (ast.get_docstring(node) or "").split("\n\n")]

    def told(opening: str) -> str:
        """The rest of the paragraph that starts so, with a capital letter."""
        rests = [text[len(opening) :].strip() for text in paragraphs if text.startswith(opening)]
        return rests[0][:1].upper() + rests[0][1:] if rests else ""

    test, message = constants.get("TEST", ""), constants.get("MESSAGE", "")
    return Fault(stage, name, paragraphs[0], told("A user sees:"), told("Seen in the wild:"), test, message, fixes)


def _constants(body: list[ast.stmt], outer: dict[str, str]) -> dict[str, str]:
    """The strings assigned to names, a name of the module around included (`TEST = TEST` in a class)."""
    found: dict[str, str] = {}
    for name, value in _assigned(body).items():
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[name] = value.value
        elif isinstance(value, ast.Name) and value.id in outer:
            found[name] = outer[value.id]
    return found


def _assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """Plain assignments `NAME = value`, annotated or not."""
    found: dict[str, ast.expr] = {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update({target.id: node.value for target in targets if isinstance(target, ast.Name)})
    return found


def summary(path: Path) -> str:
    """The first line of a file's docstring, or of what C++ has for one; empty if it has none."""
    if path.suffix in (".cpp", ".h"):
        return path.read_text("utf-8").partition("\n")[0].removeprefix("// ")
    if path.suffix != ".py":
        return ""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.partition("\n")[0]


def stage_lines(stage: Stage) -> int:
    """Lines of code of a stage, faults left out."""
    files = [path for path in stage.path.rglob("*.*") if "faults" not in path.relative_to(stage.path).parts]
    count = {".py": code_lines, ".cpp": cpp_lines, ".h": cpp_lines}
    return sum(count[path.suffix](path.read_text("utf-8")) for path in files if path.suffix in count)


def cpp_lines(source: str) -> int:
    """The same of C++: lines that are neither blank nor a comment."""
    return sum(bool(line.strip()) and not line.lstrip().startswith("//") for line in source.splitlines())


def code_lines(source: str) -> int:
    """Lines that hold code: blank lines, comments and strings that stand alone (docstrings) do not count."""
    counted: set[int] = set()
    for statement in _statements(source):
        if not all(token.type == tokenize.STRING for token in statement):
            counted.update(line for token in statement for line in range(token.start[0], token.end[0] + 1))
    return len(counted)


def _statements(source: str) -> Iterator[list[tokenize.TokenInfo]]:
    """The tokens of each logical line, without the layout and without comments."""
    layout = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            yield statement
            statement = []
        elif token.type not in layout:
            statement.append(token)
