"""Every fault file is complete, and the matrix itself turns red when a fault does not do what it says."""

import ast
from pathlib import Path

import pytest

from tests.fault_matrix import variants

ROOT = Path(__file__).resolve().parents[1]
STAGES = sorted(path.name for path in (ROOT / "stages").glob("[0-9][0-9]_*"))
FAULTS = sorted((ROOT / "stages").glob("*/faults/[!_]*.py"))
HOW_MANY = {"01": 6, "02": 6, "03": 9, "04": 10, "05": 9, "06": 6, "07": 15}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_all_its_faults(stage: str) -> None:
    assert len(list((ROOT / "stages" / stage / "faults").glob("[!_]*.py"))) == HOW_MANY[stage[:2]]


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: f"{path.parts[-3][:2]}-{path.stem}")
def test_a_fault_says_what_a_user_sees_and_where_it_bites(path: Path) -> None:
    paragraphs = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")
    assert paragraphs[0].endswith(".") and "\n" not in paragraphs[0]
    assert any(paragraph.startswith("A user sees: ") for paragraph in paragraphs)
    assert any(paragraph.startswith("Seen in the wild: ") for paragraph in paragraphs)


@pytest.mark.parametrize("stage", STAGES)
def test_every_variant_has_a_test_that_can_judge_it(stage: str) -> None:
    for variant in variants(stage):
        assert variant.test and variant.message
        file, _, name = variant.test.partition("::")
        assert Path(file).parent == Path(f"tests/stage_{stage[:2]}"), f"{variant.name}: {file} is another stage's"
        functions = [
            node for node in ast.parse((ROOT / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
        ]
        [test] = [function for function in functions if function.name == name]
        fixtures = {argument.arg for argument in test.args.args}
        source = (ROOT / file).read_text("utf-8")
        assert "parts" in fixtures or "def worker(parts" in source, f"{variant.name}: {name} does not take `parts`"
        assert variant.message in source, f"{variant.name}: its MESSAGE is not the test's"


def test_the_matrix_is_red_when_a_fault_lies(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A synthetic stage: one honest fault, and one for each way in which a fault can be a lie."""
    pytester.makepyfile(
        **{
            "stages/01_toy/__init__": "",
            "stages/01_toy/parts": """
                from dataclasses import dataclass
                from typing import Any
                class Adder:
                    def add(self, a, b): return a + b
                @dataclass(frozen=True)
                class Parts:
                    adder: Any = Adder
            """,
            "stages/01_toy/faults/__init__": "",
            "tests/stage_01/test_adder": """
                def test_it_adds(parts):
                    assert parts.adder().add(2, 2) == 4, "two and two is not four"
                    assert parts.adder().add(0, 0) == 0, "nothing and nothing is something"
            """,
        }
    )
    bodies = {
        "honest": "return 5",
        "passes": "return a + b",
        "other_reason": "return 1 / 0",
        "own_message": "raise AssertionError('two and two is not four')",
        "other_message": "return a * b + (a == 0)",
    }
    for name, body in bodies.items():
        pytester.makepyfile(
            **{
                f"stages/01_toy/faults/{name}": f"""
                    from ..parts import Adder, Parts
                    TEST = "tests/stage_01/test_adder.py::test_it_adds"
                    MESSAGE = "two and two is not four"
                    class Faulty(Adder):
                        def add(self, a, b): {body}
                    PARTS = Parts(adder=Faulty)
                """
            }
        )
    plugin = (ROOT / "tests" / "fault_matrix.py").read_text("utf-8")
    pytester.makepyfile(conftest=plugin)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    result = pytester.runpytest_subprocess("-v", "-p", "no:cacheprovider", "tests")
    result.assert_outcomes(passed=2, failed=4)
    result.stdout.fnmatch_lines_random(
        [
            "*test_it_adds?reference? PASSED*",
            "*test_it_adds?honest? PASSED*",
            "*passes: its test passes on the fault*",
            "*other_reason: failed for another reason: ZeroDivisionError*",
            "*own_message: failed for another reason: AssertionError*",
            "*other_message: failed, but without 'two and two is not four'*",
        ]
    )
