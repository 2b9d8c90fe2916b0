"""Every fault file is complete, the matrix is red when a fault does not do what it says, and the checkers can tell."""

from pathlib import Path

import pytest

from tests.faults import docstring_complaints, fault_files, stage_complaints, variant_complaints

ROOT = Path(__file__).resolve().parents[1]
STAGES = sorted((ROOT / "stages").glob("[0-9][0-9]_*"))
FAULTS = [path for stage in STAGES for path in fault_files(stage)]


def named(path: Path) -> str:
    return f"{path.parts[-3][:2]}-{path.stem}"


@pytest.mark.parametrize("stage", STAGES, ids=lambda path: path.name)
def test_a_stage_has_all_its_faults(stage: Path) -> None:
    assert stage_complaints(stage) == []


@pytest.mark.parametrize("path", FAULTS, ids=named)
def test_a_fault_says_what_a_user_sees_and_where_it_bites(path: Path) -> None:
    assert docstring_complaints(path) == []


@pytest.mark.parametrize("path", FAULTS, ids=named)
def test_a_fault_names_a_test_and_what_it_says(path: Path) -> None:
    assert variant_complaints(path, ROOT) == []


GOOD = '''"""It is wrong.

A user sees: trouble.

Seen in the wild: everywhere.
"""

TEST = "tests/stage_01/test_it.py::test_it_holds"
MESSAGE = "it does not hold"


class Lock:
    """Tempting: a lock."""

    TEST = TEST
    MESSAGE = "it holds no more"


NAIVE_FIXES = {"lock": Lock}
'''
ITS_TEST = '''
def helper():
    assert x, "it holds no more"

def test_it_holds(parts):
    """It hangs."""
    helper()
    assert y, f"{z} it does not hold"

def test_another():
    assert z, "it hangs, and it holds"  # it is late
'''


@pytest.fixture
def fault(tmp_path: Path) -> Path:
    """A good fault file, with the test it names, in a tree like this repository's."""
    fault, test = tmp_path / "stages" / "01_toy" / "faults" / "lost.py", tmp_path / "tests" / "stage_01" / "test_it.py"
    for path, text in ((fault, GOOD), (test, ITS_TEST)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return fault


def test_a_good_fault_has_no_complaints(fault: Path, tmp_path: Path) -> None:
    assert docstring_complaints(fault) == variant_complaints(fault, tmp_path) == []


def test_a_fault_that_is_missing_is_found_out_and_one_more_is_welcome(fault: Path) -> None:
    complaints = stage_complaints(fault.parents[1])
    assert "01_toy: there is no fault crossed_replies" in complaints
    for complaint in complaints:
        (fault.parent / f"{complaint.split()[-1]}.py").touch()
    assert stage_complaints(fault.parents[1]) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("It is wrong.", "It is wrong", "the first paragraph must be one line, a sentence"),
        ("It is wrong.", "It is\nwrong.", "the first paragraph must be one line, a sentence"),
        ("A user sees:", "A user saw:", "no paragraph begins with 'A user sees:'"),
        ("Seen in the wild:", "Seen:", "no paragraph begins with 'Seen in the wild:'"),
    ],
)
def test_a_fault_that_keeps_silent_is_found_out(fault: Path, old: str, new: str, complaint: str) -> None:
    fault.write_text(GOOD.replace(old, new))
    assert docstring_complaints(fault) == [f"lost: {complaint}"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("TEST = TEST", "TEST = ''", "lost:lock: TEST is '', which is no test of its stage"),
        (
            'TEST = "tests/stage_01',
            'TEST = "tests/stage_02',
            "lost: TEST is 'tests/stage_02/test_it.py::test_it_holds'",
        ),
        (
            "test_it.py",
            "test_else.py",
            "lost: TEST is 'tests/stage_01/test_else.py::test_it_holds', which does not exist",
        ),
        ("::test_it_holds", "::test_it", "lost: TEST is 'tests/stage_01/test_it.py::test_it', which does not exist"),
        ('"it does not hold"', '""', "lost: MESSAGE is '', which its test does not say"),
        ('"it does not hold"', '"it hangs"', "lost: MESSAGE is 'it hangs', which its test does not say"),
        ('"it holds no more"', '"it is late"', "lost:lock: MESSAGE is 'it is late', which its test does not say"),
    ],
)
def test_a_fault_without_a_test_of_its_own_is_found_out(
    fault: Path, tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    fault.write_text(GOOD.replace(old, new))
    assert variant_complaints(fault, tmp_path)[0].startswith(complaint)


def test_the_matrix_is_red_when_a_fault_lies(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A synthetic repository, below a folder called tests: an honest fault, and one for each way to be a lie."""
    root = "tests/checkout"
    pytester.makepyfile(
        **{
            f"{root}/stages/01_toy/__init__": "",
            f"{root}/stages/01_toy/parts": """
                from dataclasses import dataclass
                from typing import Any
                class Adder:
                    def add(self, a, b): return a + b
                @dataclass(frozen=True)
                class Parts:
                    adder: Any = Adder
            """,
            f"{root}/stages/01_toy/faults/__init__": "",
            f"{root}/tests/conftest": (ROOT / "tests" / "fault_matrix.py").read_text("utf-8"),
            f"{root}/tests/stage_01/test_adder": """
                import pytest
                def test_it_adds(parts):
                    assert parts.adder().add(2, 2) == 4, "two and two is not four"
                    assert parts.adder().add(0, 0) == 0, "nothing and nothing is something"
                def test_that_looks_away(parts):
                    if parts.adder().add(2, 2) != 4:
                        pytest.skip("two and two is not four")
                @pytest.mark.skip("two and two is not four")
                def test_that_is_off(parts): ...
                def test_of_something_else():
                    assert True, "two and two is not four"
            """,
        }
    )
    faults = {
        "honest": ("test_it_adds", "return 5"),
        "passes": ("test_it_adds", "return a + b"),
        "other_reason": ("test_it_adds", "return 1 / 0"),
        "own_message": ("test_it_adds", "raise AssertionError('two and two is not four')"),
        "other_message": ("test_it_adds", "return a * b + (a == 0)"),
        "skips": ("test_that_looks_away", "return 5"),
        "is_skipped": ("test_that_is_off", "return 5"),
        "without_parts": ("test_of_something_else", "return 5"),
        "without_a_test": ("test_that_is_not_there", "return 5"),
    }
    for name, (test, body) in faults.items():
        pytester.makepyfile(
            **{
                f"{root}/stages/01_toy/faults/{name}": f"""
                    from ..parts import Adder, Parts
                    TEST = "tests/stage_01/test_adder.py::{test}"
                    MESSAGE = "two and two is not four"
                    class Faulty(Adder):
                        def add(self, a, b): {body}
                    PARTS = Parts(adder=Faulty)
                """
            }
        )
    pytester.makepyfile(**{f"{root}/stages/01_toy/faults/names_nothing": "from ..parts import Parts\nPARTS = Parts()"})
    monkeypatch.chdir(pytester.path / root)
    monkeypatch.setenv("PYTHONPATH", ".")
    options = ("-v", "-rs", "-p", "no:cacheprovider", "--rootdir", ".")
    result = pytester.runpytest_subprocess(*options, "tests")
    result.assert_outcomes(passed=4, skipped=1, failed=8, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*test_it_adds?reference? PASSED*",
            "*test_it_adds?honest? PASSED*",
            "*test_that_is_off?reference? SKIPPED*",
            "*passes: its test passes on the fault*",
            "*other_reason: failed for another reason: ZeroDivisionError*",
            "*own_message: failed for another reason: AssertionError*",
            "*other_message: failed, but without 'two and two is not four'*",
            "*skips: its test was skipped, and judged nothing*",
            "*is_skipped: its test was skipped, and judged nothing*",
            "*without_parts: no test judges it*",
            "*without_a_test: no test judges it*",
            "*names_nothing: no test judges it*",
        ]
    )
    one = pytester.runpytest_subprocess(*options, "tests/stage_01/test_adder.py::test_of_something_else")
    one.assert_outcomes(passed=1)  # who asks for one test is told of nothing else
