"""No document and no plot of this repository shows figures other than those measured, and the checker finds it out."""

import json
from pathlib import Path

import pytest

from benchmarks import figures, plots
from benchmarks.scenarios import SCENARIOS
from benchmarks.stamp import RESULTS, ROOT, stamp_line, write_result

from .samples import RESULTS as SAMPLES
from .samples import STAMP, gil_result, users_result


@pytest.fixture
def results(tmp_path: Path) -> Path:
    directory = tmp_path / "benchmarks" / "results"
    for name in ("users", "gil"):
        write_result(name, SAMPLES[name](), directory)
    plots.draw(SCENARIOS["users"], directory)
    return directory


def stale(results: Path, text: str, name: str = "README.md", rewrite: bool = False) -> list[str]:
    path = results.parents[1] / name
    path.write_text(text, encoding="utf-8")
    return figures.stale(path.parent, results, rewrite)


def test_nothing_in_this_repository_is_stale() -> None:
    assert figures.stale(ROOT, RESULTS) == []


def test_a_stale_table_is_found_and_mended_once_and_for_all(results: Path) -> None:
    text = "Before.\n\n<!-- figures: users_table 01 -->\n| an | old | table |\n<!-- /figures -->\n\nAfter.\n"
    assert stale(results, text) == ["README.md: stale; `python -m benchmarks.figures` rewrites it"]
    assert stale(results, text, rewrite=True) == []
    mended = (results.parents[1] / "README.md").read_text(encoding="utf-8")
    assert mended.startswith("Before.\n\n<!-- figures: users_table 01 -->\n\n| users |")
    assert mended.endswith("<!-- /figures -->\n\nAfter.\n")
    assert "| 50 | stage 01 | 12.5 | 250 | 50.0 ms | 0.50 s | 2.00 s | - | 0.25 s | 1.0 | none |" in mended
    assert "ten-line" not in mended
    assert stamp_line(STAMP) in mended
    assert stale(results, mended) == []


def test_a_new_measurement_makes_old_figures_stale(results: Path) -> None:
    text = figures.render("<!-- figures: gil_table --><!-- /figures -->\n", results)
    assert stale(results, text) == []
    changed = gil_result()
    changed["cells"][0]["tokens_per_second"] = 77.0
    write_result("gil", changed, results)
    assert stale(results, text) == ["README.md: stale; `python -m benchmarks.figures` rewrites it"]


def test_a_plot_of_another_measurement_is_stale(results: Path) -> None:
    assert stale(results, "No figures.\n") == []
    changed = users_result()
    changed["cells"][0]["tokens_per_second"] = 77.0
    write_result("users", changed, results)
    assert stale(results, "No figures.\n") == [
        "users.png: not drawn from users.json; `python -m benchmarks.plots` draws it"
    ]
    (results / "users.png").unlink()
    assert len(stale(results, "No figures.\n")) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- figures: no_such_table --><!-- /figures -->", "no figure 'no_such_table'; there are "),
        ("<!-- figures: users_table -->", "not closed"),
        ("<!-- figures: users_table --> <!-- figures: gil_table --><!-- /figures -->", "not closed"),
        ("<!-- figures: users_value 09 50 latency p95 --><!-- /figures -->", "users.json has no such figure"),
        ("<!-- figures: users_table 09 --><!-- /figures -->", "users.json has no such figure"),
        ("<!-- figures: users_value 01 50 latency p12 --><!-- /figures -->", "users.json has no such figure"),
        ("<!-- figures: gil_table surplus --><!-- /figures -->", "gil.json has no such figure"),
    ],
)
def test_a_marker_that_cannot_be_filled_is_a_finding(results: Path, text: str, why: str) -> None:
    [line] = stale(results, text, rewrite=True)
    assert line.startswith("README.md: ")
    assert why in line


def test_a_figure_without_a_measurement_is_a_finding(results: Path) -> None:
    (results / "gil.json").unlink()
    [line] = stale(results, "<!-- figures: gil_table --><!-- /figures -->")
    assert "there is no gil.json; `python -m benchmarks gil` makes it" in line


def test_what_may_be_missing_is_a_dash_until_it_is_measured(results: Path) -> None:
    marked = ["?users_value 03 50 latency p50", "?users_value 01 50 latency p50", "?admission_ratio", "?prefix_table"]
    text = "".join(f"<!-- figures: {words} -->-<!-- /figures -->\n" for words in marked)
    assert stale(results, text, rewrite=True) == []
    [missing, there, *rest] = (results.parents[1] / "README.md").read_text(encoding="utf-8").splitlines()
    assert missing.endswith("-->-<!-- /figures -->")
    assert there.endswith("-->50.0 ms<!-- /figures -->")
    assert all(line.endswith("-->-<!-- /figures -->") for line in rest)
    write_result("admission", SAMPLES["admission"](), results)
    assert "README.md: stale; `python -m benchmarks.figures` rewrites it" in stale(results, text)
    assert "3.0 times" in figures.render(text, results)


def test_what_may_be_missing_must_still_be_spelled_right(results: Path) -> None:
    for wrong in ("?no_such_table", "?users_value 01 50 latency p12", "?gil_table surplus"):
        [line] = stale(results, f"<!-- figures: {wrong} -->-<!-- /figures -->")
        assert line.startswith("README.md: ")


def test_notebooks_are_checked_too_and_their_code_is_left_alone(results: Path) -> None:
    marker = "<!-- figures: gil_ratio ten_line_server 1 lag p50 -->?<!-- /figures -->"
    cells = [{"cell_type": kind, "metadata": {}, "source": ["One.\n", marker]} for kind in ("markdown", "code")]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"
    assert stale(results, text, "tour.ipynb") == ["tour.ipynb: stale; `python -m benchmarks.figures` rewrites it"]
    assert stale(results, text, "tour.ipynb", rewrite=True) == []
    mended = json.loads((results.parents[1] / "tour.ipynb").read_text(encoding="utf-8"))
    assert mended["cells"][0]["source"] == ["One.\n", marker.replace("?", "1.0 times")]
    assert mended["cells"][1]["source"] == ["One.\n", marker]


def test_a_marker_can_be_spoken_of(results: Path) -> None:
    assert stale(results, "Write `<!-- figures: NAME -->` and `<!-- /figures -->`.\n") == []


def test_results_are_stamped_and_name_no_host() -> None:
    for path in RESULTS.glob("*.json"):
        told = json.loads(path.read_text(encoding="utf-8"))["stamp"]
        assert set(told) == set(STAMP)
        assert set(told["machine"]) == {"processor", "cores", "system"}
        assert set(told["versions"]) == {"python", "torch", "transformers"}
