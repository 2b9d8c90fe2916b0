"""The worker alone, with the shipped model in process."""

import unicodedata
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving import Stage

stage = Stage("01_single_request")


@pytest.fixture
def worker(parts: Any, tiny_opt: tuple[Any, Any]) -> Any:
    module, name = parts.worker.split(":")
    return getattr(import_module(module), name)(*tiny_opt)


def run(worker: Any, prompt: str, max_new_tokens: int = 50, **options: Any) -> tuple[Any, Any]:
    [result], work = worker.execute([stage.sequence.Sequence(prompt, max_new_tokens, **options)])
    return result, work


def test_the_completion_comes_without_its_prompt(worker: Any) -> None:
    result, _ = run(worker, "Count from 3 to 9:")
    assert "Count" not in result.text, "the prompt came back with the completion"
    assert result.text == " 3 4 5 6 7 8 9"
    assert result.tokens == 8  # seven numbers and the stop token


def test_a_prompt_that_does_not_round_trip_costs_the_answer_nothing(worker: Any) -> None:
    composed = "What is a naïve server?"
    decomposed = unicodedata.normalize("NFD", composed)
    assert len(decomposed) > len(composed)
    plain, _ = run(worker, composed)
    result, _ = run(worker, decomposed)
    assert result.text == plain.text, "the cut fell inside the answer"
    assert result.text.startswith(" ")


def test_a_prompt_longer_than_the_context_is_refused(worker: Any) -> None:
    result, work = run(worker, "word " * 2000, 10)
    assert isinstance(result, stage.sequence.Refusal), "a prompt that does not fit was answered"
    assert "1014" in result.message  # the limit: a context of 1024, less 10
    assert work.forward_passes == 0


def test_the_longest_prompt_that_fits_is_answered(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    prompt = "!" * 1000
    room = tiny_opt[0].config.max_position_embeddings - len(tiny_opt[1](prompt)["input_ids"])
    result, _ = run(worker, prompt, room)
    assert isinstance(result, stage.sequence.Completion)
    result, _ = run(worker, prompt, room + 1)
    assert isinstance(result, stage.sequence.Refusal)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_the_counters_agree_with_the_model(worker: Any, tiny_opt: tuple[Any, Any], ignore_eos: bool) -> None:
    shapes: list[Any] = []
    hook = tiny_opt[0].register_forward_hook(
        lambda _, args, kwargs, output: shapes.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    try:
        result, work = run(worker, "Count from 3 to 9:", 20, ignore_eos=ignore_eos)
    finally:
        hook.remove()
    assert work.forward_passes == len(shapes) == result.tokens == (20 if ignore_eos else 8)
    assert work.row_steps == sum(rows for rows, _ in shapes)
    assert work.positions_computed == sum(rows * columns for rows, columns in shapes)
    assert work.rows == 1
    assert work.positions_padding == work.idle_row_steps == 0


@settings(max_examples=60, deadline=None, database=None)
@given(st.text(min_size=1, max_size=200), st.integers(1, 3), st.booleans())
def test_whatever_a_client_may_send_has_a_result(
    tiny_opt: tuple[Any, Any], prompt: str, max_new_tokens: int, ignore_eos: bool
) -> None:
    result, _ = run(stage.worker.Worker(*tiny_opt), prompt, max_new_tokens, ignore_eos=ignore_eos)
    assert isinstance(result, stage.sequence.Completion | stage.sequence.Refusal)
