"""Two synthetic stages, so that these tests say what they mean and need no real one."""

from pathlib import Path

import pytest

LINEAGE = """
[01_first_thing]
parents = []
idea = "One thing."
carried = []

[02_second_thing]
parents = ["01_first_thing"]
idea = "Two things."
carried = ["trace.py"]
"""

FAULT = '''"""The reply is taken without looking.

A longer story.

A user sees: somebody else's
answer.

Seen in the wild: everywhere.
"""
import torch_is_not_to_be_imported

TEST = "tests/stage_01/test_x.py::test_own_reply"
MESSAGE = "got another's reply"
PARTS = None


class Lock:
    """Tempting: a lock."""

    PARTS = None
    TEST = TEST
    MESSAGE = "still another's"


NAIVE_FIXES = {"put_a_lock": Lock}
'''


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    """A directory like `stages/`."""
    first, second = tmp_path / "01_first_thing", tmp_path / "02_second_thing"
    write(tmp_path / "lineage.toml", LINEAGE)
    for stage in (first, second):
        write(stage / "__main__.py", '"""Flags."""\n')
        write(stage / "trace.py", '"""Traces."""\nx = 1\n')
        write(stage / "README.md", stage.name)
    write(first / "engine.py", '"""The engine."""\n\nbatch = 1\nsame = 2\n')
    write(second / "engine.py", '"""The engine."""\n\nbatch = 4\nsame = 2\n')
    write(first / "pipe.py", '"""Gone in 02."""\n')
    write(second / "scheduler.py", '"""Decides who is next.\n\nMore.\n"""\n')
    write(first / "faults" / "__init__.py", "")
    write(first / "faults" / "crossed.py", FAULT)
    return tmp_path
