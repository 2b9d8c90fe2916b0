"""Names, faults and line counts, all read without importing a stage."""

from pathlib import Path

import pytest

from flo.catalog import check_fault, code_lines, find_faults, find_stage, find_stages, stage_lines, summary
from flo.errors import StageFailed, Unknown
from flo.visits import VISITS

NAMES = ["02", "2", "02_second_thing", "second_thing", "second-thing", "stages/02_second_thing/"]


@pytest.mark.parametrize("word", NAMES)
def test_a_stage_has_many_names(stages: Path, word: str) -> None:
    assert find_stage(word, stages).name == "02_second_thing"


@pytest.mark.parametrize("word", ["2nd_second_thing", "second_thin", "02_secnd_thing"])
def test_an_unknown_stage_suggests_the_nearest(stages: Path, word: str) -> None:
    with pytest.raises(Unknown, match=r"did you mean 02_second_thing\?"):
        find_stage(word, stages)


def test_a_stage_that_is_like_none_gets_the_list(stages: Path) -> None:
    with pytest.raises(Unknown, match="there are 01_first_thing, 02_second_thing"):
        find_stage("99", stages)


def test_lineage_gives_idea_and_parents(stages: Path) -> None:
    first, second = find_stages(stages)
    assert (first.idea, first.parents) == ("One thing.", ())
    assert (second.idea, second.parents, second.carried) == ("Two things.", ("01_first_thing",), ("trace.py",))


def test_a_fault_file_is_read_without_being_imported(stages: Path) -> None:
    [fault] = find_faults(find_stage("01", stages))
    assert (fault.name, fault.wrong) == ("crossed", "The reply is taken without looking.")
    assert fault.user_sees == "Somebody else's answer."
    assert fault.seen_in_the_wild == "Everywhere."
    assert (fault.test, fault.message) == ("tests/stage_01/test_x.py::test_own_reply", "got another's reply")
    [fix] = fault.fixes
    assert (fix.name, fix.wrong, fix.message) == ("put_a_lock", "Tempting: a lock.", "still another's")
    assert fix.test == fault.test


def test_fault_names_are_checked_and_suggested(stages: Path) -> None:
    stage = find_stage("01", stages)
    assert check_fault(stage, "crossed") == "crossed"
    assert check_fault(stage, "crossed:put_a_lock") == "crossed:put_a_lock"
    with pytest.raises(Unknown, match=r"did you mean crossed\?"):
        check_fault(stage, "corssed")
    with pytest.raises(Unknown, match=r"did you mean put_a_lock\?"):
        check_fault(stage, "crossed:put_lock")
    with pytest.raises(Unknown, match="there are none"):
        check_fault(find_stage("02", stages), "crossed")


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    source = '''"""Docstring

of three lines."""

# a comment
import os  # counts


def f(
    x: str = "counts too",
) -> None:
    """Docstring."""
    text = """counts
    twice"""


MORE = 1
"""what MORE is"""
'''
    assert code_lines(source) == 7


def test_faults_do_not_count_as_code(stages: Path) -> None:
    assert stage_lines(find_stage("01", stages)) == 3


@pytest.mark.parametrize("name", ["kernel.cpp", "kernel.h"])
def test_cpp_counts_as_code_and_introduces_itself(name: str, stages: Path) -> None:
    stage = find_stage("01", stages)
    kernel = stage.path / name
    kernel.write_text("// 01: what it is.\n// More.\n\nint one() {\n  return 1;  // counts\n}\n")
    assert summary(kernel) == "01: what it is."
    assert stage_lines(stage) == 3 + 3


def test_a_failed_stage_is_told_in_one_line_unless_there_is_a_traceback() -> None:
    usage = StageFailed("stage 01 ended", "usage: x\n  [-h]\nx: error: --model y: none\n")
    assert str(usage) == "stage 01 ended: x: error: --model y: none"
    crash = "Traceback (most recent call last):\n  File ...\nKeyError: 1"
    assert str(StageFailed("stage 01 ended", crash)) == f"stage 01 ended\n{crash}"
    assert str(StageFailed("stage 01 ended", "")) == "stage 01 ended"


def test_the_tour_knows_every_stage() -> None:
    assert {stage.name for stage in find_stages()} <= set(VISITS)
