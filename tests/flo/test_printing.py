"""What the tables and `flo diff` print, for synthetic stages."""

import io
from pathlib import Path

from rich.console import Console

from flo.catalog import find_stages
from flo.diff import compare, show_diff, unified
from flo.tables import faults_table, stages_table


def printed(what: object) -> str:
    console = Console(file=io.StringIO(), width=110)
    console.print(what)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_the_faults_table_has_a_row_a_fault_and_one_a_naive_fix(stages: Path) -> None:
    text = printed(faults_table(find_stages(stages)))
    fault, fix = (next(line for line in text.splitlines() if name in line) for name in ("crossed", ":put_a_lock"))
    assert "Somebody else's answer." in fault
    assert "tests/stage_01/test_x.py::" in fault
    assert "Tempting: a lock." in fix
    assert "test_own_reply" in text


def test_the_stages_table_counts(stages: Path) -> None:
    rows = [line.split() for line in printed(stages_table(find_stages(stages))).splitlines() if "thing" in line]
    assert rows == [
        ["01", "first", "thing", "One", "thing.", "3", "1"],
        ["02", "second", "thing", "Two", "things.", "01", "3", "0"],
    ]


def test_files_are_sorted_by_what_became_of_them(stages: Path) -> None:
    found = compare(stages / "01_first_thing", stages / "02_second_thing")
    assert found.changed == ["engine.py"]
    assert found.added == ["scheduler.py"]
    assert found.removed == ["pipe.py"]
    assert found.carried == ["__main__.py", "trace.py"]


def test_a_diff_for_a_pipe_can_be_applied(stages: Path) -> None:
    lines = unified(stages / "01_first_thing", stages / "02_second_thing", "engine.py").splitlines()
    assert lines[:2] == ["--- 01_first_thing/engine.py", "+++ 02_second_thing/engine.py"]
    assert lines[-3:] == ["-batch = 1", "+batch = 4", " same = 2"]


def test_show_diff_tells_the_idea_and_the_rest(stages: Path) -> None:
    console = Console(file=io.StringIO(), width=110)
    show_diff(console, "1", "second_thing", stages)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "The idea: Two things." in text
    assert "3 lines of code (01 has 3); parents of 02: 01_first_thing" in text
    assert "scheduler.py: Decides who is next." in text
    assert "-batch = 1\n+batch = 4\n" in text
    assert "README" not in text
    assert "Faults (not compared): 01 has 1, 02 has 0." in text


def test_an_added_file_may_come_from_the_other_parent(stages: Path) -> None:
    lineage = stages / "lineage.toml"
    joined = '[03_both]\nparents = ["01_first_thing", "02_second_thing"]\nidea = "Both."\ncarried = []\n'
    lineage.write_text(lineage.read_text("utf-8") + joined, encoding="utf-8")
    (stages / "03_both").mkdir()
    for name, origin in (("__main__.py", "01_first_thing"), ("scheduler.py", "02_second_thing")):
        (stages / "03_both" / name).write_bytes((stages / origin / name).read_bytes())
    console = Console(file=io.StringIO(), width=110)
    show_diff(console, "01", "03", stages)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "scheduler.py (carried over from 02_second_thing): Decides who is next." in text
