"""No document and no plot of this repository shows figures other than those measured, and the checker finds it out."""

import json
from pathlib import Path

import pytest

from benchmarks import figures, plots
from benchmarks.renderers import RENDERERS
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


@pytest.fixture(scope="module")
def every_result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    for name, sample in SAMPLES.items():
        write_result(name, sample(), directory)
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


@pytest.mark.parametrize(
    ("marker", "value"),
    [
        ("users_ratio 01 ten_line_server 50", "2.5 times"),
        ("users_ratio 01 03_stream 50 latency p95", "1.0 times"),
        ("users_value 01 16 tokens_per_second", "250"),
        ("users_value 03_stream 16 ttft p50", "50.0 ms"),
        ("smollm2_ratio 01 ten_line_server 16", "2.5 times"),
        ("smollm2_value 01 4 latency p50", "50.0 ms"),
        ("gil_value model_in_child 16 lag p99", "2.00 s"),
        ("gil_ratio model_in_thread 16 heartbeat p50", "1.0 times"),
        ("batching_ratio 05 04 32", "3.0 times"),
        ("max_delay_value 150 5 latency p99", "2.00 s"),
        ("max_delay_value 150 5 rows_per_forward", "2.5"),
        ("open_loop_rate", "12.0"),
        ("open_loop_ratio 02 03_stream", "3.0 times"),
        ("open_loop_value 03_stream first p50", "0.10 s"),
        ("open_loop_value 02 capacity", "20.0"),
        ("open_loop_value 02 load", "60%"),
        ("step_cost_value tiny-opt 16", "19.0 ms"),
        ("step_cost_ratio tiny-opt 16", "4.8 times"),
        ("step_cost_one_more tiny-opt", "1.0 ms"),
        ("no_cache_value 512 attended", "131,328"),
        ("no_cache_value 512 with_cache", "512"),
        ("no_cache_value 512 ratio", "256.5 times"),
        ("no_cache_value 20 seconds", "0.20 s"),
        ("no_cache_ratio 512 20", "1.0 times"),
        ("slots_value 02 E waited", "10.0 ms"),
        ("slots_value 03 A idle", "10.0 ms"),
    ],
)
def test_a_value_stands_in_the_middle_of_a_sentence(every_result: Path, marker: str, value: str) -> None:
    text = f"It takes <!-- figures: {marker} -->?<!-- /figures --> in all."
    rendered = f"It takes <!-- figures: {marker} -->{value}<!-- /figures --> in all."
    assert figures.render(text, every_result) == rendered


@pytest.mark.parametrize("marker", [name for name in RENDERERS if name.endswith("_table")])
def test_a_table_has_a_row_for_everything_measured_and_a_stamp(every_result: Path, marker: str) -> None:
    lines = figures.render(f"<!-- figures: {marker} --><!-- /figures -->", every_result).splitlines()
    name = RENDERERS[marker][0]
    assert len([line for line in lines if line.startswith("|")]) == 2 + len(SCENARIOS[name].table(SAMPLES[name]()).rows)
    assert f"*{stamp_line(STAMP)}*" in lines
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.draw])
def test_a_plot_belongs_to_its_result(every_result: Path, name: str) -> None:
    assert plots.draw(SCENARIOS[name], every_result).stat().st_size > 10_000
    assert not plots.is_stale(name, every_result)


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


def test_every_figure_says_what_it_is_and_has_a_result_that_can_be_measured() -> None:
    for source, renderer in RENDERERS.values():
        assert source in SCENARIOS
        assert renderer.__doc__


def test_results_are_stamped_and_name_no_host() -> None:
    for path in RESULTS.glob("*.json"):
        told = json.loads(path.read_text(encoding="utf-8"))["stamp"]
        assert set(told) == set(STAMP)
        assert set(told["machine"]) == {"processor", "cores", "system"}
        assert set(told["versions"]) == {"python", "torch", "transformers"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_table_on_the_screen_has_a_row_a_cell(name: str) -> None:
    result = SAMPLES[name]()
    told = SCENARIOS[name].table(result)
    assert told.rich().row_count == len(told.rows)
    assert len(told.rows) == (6 if name == "slots" else len(result["cells"]))


def test_a_model_that_is_not_there_is_told_with_how_to_get_it() -> None:
    assert "smollm2 is not there" in SCENARIOS["step_cost"].table(SAMPLES["step_cost"]()).title
