"""The family tree is true, stages stand alone, and the checkers can tell when not."""

from pathlib import Path

import pytest

from tests.lineage import import_complaints, tree_complaints

ROOT = Path(__file__).resolve().parents[1]
OURS = {path.name for path in ROOT.iterdir() if path.is_dir()}


def test_the_family_tree_is_true() -> None:
    assert tree_complaints(ROOT / "stages") == []


@pytest.mark.parametrize("stage", sorted((ROOT / "stages").glob("[0-9][0-9]_*")), ids=lambda path: path.name)
def test_a_stage_imports_nothing_else_of_this_repository(stage: Path) -> None:
    assert import_complaints(stage, OURS) == []


@pytest.fixture
def family(tmp_path: Path) -> Path:
    for name in ("01_parent", "02_child"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text("same = 1\n")
        (tmp_path / name / "own.py").write_text(f"own = {name!r}\n")
    write_tree(tmp_path)
    return tmp_path


def write_tree(
    family: Path, idea: str = "One idea.", parents: str = '["01_parent"]', carried: str = '["same.py"]'
) -> None:
    (family / "lineage.toml").write_text(
        '[01_parent]\nparents = []\nidea = "One idea."\ncarried = []\n'
        f'[02_child]\nparents = {parents}\nidea = "{idea}"\ncarried = {carried}\n'
    )


def test_a_true_tree_has_no_complaints(family: Path) -> None:
    assert tree_complaints(family) == []


def test_a_false_tree_is_found_out(family: Path) -> None:
    (family / "02_child" / "same.py").write_text("same = 2\n")
    assert tree_complaints(family) == ["02_child: same.py is not byte for byte its parent's"]
    (family / "02_child" / "own.py").write_bytes((family / "01_parent" / "own.py").read_bytes())
    write_tree(family, carried="[]")
    assert tree_complaints(family) == ["02_child: own.py is its parent's, but not listed as carried"]
    write_tree(family, idea="One idea. And another.", carried='["own.py"]')
    assert tree_complaints(family) == ["02_child: the idea must be one sentence"]
    write_tree(family, parents='["07_grandchild"]', carried="[]")
    assert tree_complaints(family) == ["02_child: parent 07_grandchild is no older stage"]
    (family / "03_unknown").mkdir()
    write_tree(family, carried='["own.py"]')
    assert tree_complaints(family) == ["03_unknown: not in lineage.toml"]


def test_an_import_from_outside_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "faults").mkdir()
    (tmp_path / "own.py").write_text("import json\nfrom . import other\nfrom flo import servers\n")
    (tmp_path / "faults" / "fault.py").write_text(
        "from ..own import x\nfrom ...elsewhere import y\nimport tests.serving\n"
    )
    assert import_complaints(tmp_path, {"flo", "tests"}) == [
        "fault.py:2: imports from outside the stage",
        "fault.py:3: imports tests.serving, which is this repository's",
        "own.py:3: imports flo, which is this repository's",
    ]


def test_an_import_by_a_call_is_found_out(tmp_path: Path) -> None:
    lines = [
        "import_module('json')",
        "import_module('.own', __package__)",
        "import_module(f'.{name}', __package__)",
        "import_module(name)",
        "importlib.import_module('flo.servers')",
        "__import__('tests')",
        "import_module(f'flo.{name}')",
        "import_module('..elsewhere', __package__)",
    ]
    (tmp_path / "own.py").write_text("\n".join(lines))
    assert import_complaints(tmp_path, {"flo", "tests"}) == [
        "own.py:5: imports flo.servers, which is this repository's",
        "own.py:6: imports tests, which is this repository's",
        "own.py:7: imports flo., which is this repository's",
        "own.py:8: imports from outside the stage",
    ]


def test_the_faults_own_file_is_carried_like_any_other(family: Path) -> None:
    for name in ("01_parent", "02_child"):
        (family / name / "faults").mkdir()
        (family / name / "faults" / "__init__.py").write_text("same = 1\n")
    assert tree_complaints(family) == ["02_child: faults/__init__.py is its parent's, but not listed as carried"]
    write_tree(family, carried='["same.py", "faults/__init__.py"]')
    assert tree_complaints(family) == []
    (family / "02_child" / "faults" / "__init__.py").write_text("same = 2\n")
    assert tree_complaints(family) == ["02_child: faults/__init__.py is not byte for byte its parent's"]
