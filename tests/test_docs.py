"""Documents keep their word: what they show can be run, links lead somewhere, and the checkers can tell when not."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.figures import documents
from flo.catalog import find_stage
from tests.docs import command_complaints, examples, link_complaints, matches, readme_complaints, walk

ROOT = Path(__file__).resolve().parents[1]
STAGES = sorted(path.parent for path in (ROOT / "stages").glob("[0-9][0-9]_*/__main__.py"))
WALKED = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *(stage / "README.md" for stage in STAGES),
]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def walks() -> Iterator[dict[Path, "Future[list[str]]"]]:
    """All documents are walked through side by side, because servers take a while to start."""
    with ThreadPoolExecutor(3) as walkers:
        yield {document: walkers.submit(walk, document, ROOT) for document in WALKED}


@pytest.mark.parametrize("document", WALKED, ids=named)
def test_what_a_document_shows_can_be_run(document: Path, walks: dict[Path, "Future[list[str]]"]) -> None:
    assert walks[document].result(100) == []


@pytest.mark.parametrize("stage", STAGES, ids=named)
def test_a_stage_shows_how_to_run_it(stage: Path) -> None:
    first, *others = examples((stage / "README.md").read_text(encoding="utf-8"))
    assert first.commands == " ".join(["flo run", stage.name[:2], *find_stage(stage.name).quick])
    assert any("curl" in example.commands and example.expected for example in others)


@pytest.mark.parametrize("stage", STAGES, ids=named)
def test_a_readme_has_its_parts(stage: Path) -> None:
    assert readme_complaints(stage) == []


def test_links_lead_somewhere() -> None:
    assert link_complaints(ROOT) == []


@pytest.mark.parametrize("document", [path for path in documents(ROOT) if path.suffix == ".md"], ids=named)
def test_commands_name_what_exists(document: Path) -> None:
    assert command_complaints(document, ROOT / "stages") == []


def shows(commands: str, *expected: str) -> str:
    block = f"```text\n{expected[0]}\n```\n" if expected else ""
    return f"Words.\n\n<!-- tested -->\n```bash\n{commands}\n```\n{block}"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return tmp_path / "README.md"


def walk_through(document: Path, text: str, seconds: float = 20.0) -> list[str]:
    document.write_text(text, encoding="utf-8")
    return walk(document, document.parent, seconds)


def test_an_example_that_keeps_its_word_has_no_complaints(document: Path) -> None:
    text = shows("echo one\necho two", "one\ntwo") + shows("true") + shows("echo id 7 of 9", "id ... of 9")
    assert walk_through(document, text) == []


def test_an_example_that_prints_something_else_is_found_out(document: Path) -> None:
    assert walk_through(document, shows("echo one", "two")) == ["line 3: does not print what it says, but\none\n"]


def test_an_example_that_fails_is_found_out(document: Path) -> None:
    assert walk_through(document, shows("echo oh; exit 3", "oh")) == ["line 3: exit status 3\noh\n"]


def test_an_example_that_never_ends_is_ended(document: Path) -> None:
    assert walk_through(document, shows("tail -f /dev/null"), 0.1) == ["line 3: took longer than 0.1 s"]


def test_an_example_without_a_server_meets_nobody_elses(document: Path) -> None:
    assert walk_through(document, shows("echo http://127.0.0.1:8000/", "http://127.0.0.1:0/")) == []


def test_a_server_that_does_not_start_is_found_out(document: Path) -> None:
    [complaint] = walk_through(document, shows("flo run 99"))
    assert complaint.startswith("line 3: did not start") and "no stage" in complaint


def test_a_marker_without_commands_is_found_out() -> None:
    with pytest.raises(ValueError, match="line 1: no bash block"):
        examples("<!-- tested -->\n\n```bash\ntrue\n```\n")


@pytest.mark.parametrize(
    ("expected", "output", "verdict"),
    [
        ("a", "a\n", True),
        ("a", "ab", False),
        ("a...d", "abcd", True),
        ("...c...", "abcd", True),
        ("a...c", "abcd", False),
        ("...b...b...", "abc", False),
        ("ab...bc", "abc", False),
    ],
)
def test_three_dots_stand_for_anything(expected: str, output: str, verdict: bool) -> None:
    assert matches(expected, output) is verdict


def test_a_link_that_leads_nowhere_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title: here\n")
    document = tmp_path / "README.md"
    document.write_text("[a](other.md) [b](other.md#a-title-here) [c](https://a.b/c)\n\n```text\n[x](y)\n```\n")
    assert link_complaints(tmp_path) == []
    document.write_text("![a](none.png) [b](other.md#elsewhere) [c](../..) [d](#gone)\n")
    assert link_complaints(tmp_path) == [
        "README.md: none.png leads nowhere",
        "README.md: other.md#elsewhere is no heading there",
        "README.md: ../.. leads nowhere",
        "README.md: #gone is no heading there",
    ]


PARTS = """# 02 second

## The problem
## The idea

```mermaid
graph LR
```

## Read it in this order

Already read: `same.py`.

## Run it
## What it costs
## The faults

[`lost`](faults/lost.py)

## Next
"""


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    stage = tmp_path / "02_second"
    (stage / "faults").mkdir(parents=True)
    (stage / "__main__.py").touch()
    (stage / "faults" / "lost.py").write_text('"""Lost."""\n')
    (stage / "README.md").write_text(PARTS)
    (tmp_path / "lineage.toml").write_text('[02_second]\nparents = []\nidea = "One."\ncarried = ["same.py"]\n')
    return stage


def test_a_readme_that_has_all_parts_has_no_complaints(stage: Path) -> None:
    assert readme_complaints(stage) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("## Next", "## And then", "the parts must be The problem"),
        ("## The idea\n", "", "the parts must be The problem"),
        ("```mermaid", "```text", "there must be one mermaid diagram"),
        ("`same.py`", "`other.py`", "already read, so the lineage says, are same.py"),
        ("faults/lost.py", "faults/found.py", "there is no fault found"),
        ("[`lost`](faults/lost.py)", "`lost`", "the fault lost is not mentioned"),
    ],
)
def test_a_readme_that_lacks_a_part_is_found_out(stage: Path, old: str, new: str, complaint: str) -> None:
    (stage / "README.md").write_text(PARTS.replace(old, new))
    assert f"02_second: {complaint}" in "\n".join(readme_complaints(stage))
    (stage / "README.md").unlink()
    assert readme_complaints(stage) == ["02_second: no README.md"]


def test_a_command_about_what_is_not_there_is_found_out(stage: Path, document: Path) -> None:
    document.write_text("| `flo run 02 --fault lost` | `flo faults 02` |\n")
    assert command_complaints(document, stage.parent) == []
    document.write_text("`flo run 02 --fault last`, `flo diff 02 03`, flo follow 07 'x'\n")
    complaints = command_complaints(document, stage.parent)
    assert [complaint.split(":")[1].strip() for complaint in complaints] == [
        "no fault 'last' in 02_second",
        "no stage '03'",
        "no stage '07'",
    ]
