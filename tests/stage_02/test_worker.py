"""The worker alone, with the shipped model in process."""

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving import Stage

stage = Stage("02_static_batching")
PROMPTS = ["Count from 3 to 9:", "Explain the KV cache in one sentence.", "Count from 41 to 44:", "What is a batch?"]


@pytest.fixture
def worker(parts: Any, tiny_opt: tuple[Any, Any]) -> Any:
    module, name = parts.worker.split(":")
    return getattr(import_module(module), name)(*tiny_opt)


def batch(*prompts: str, max_new_tokens: int = 50, **options: Any) -> list[Any]:
    return [stage.sequence.Sequence(prompt, max_new_tokens, **options) for prompt in prompts]


def test_company_does_not_change_an_answer(worker: Any) -> None:
    alone = [worker.execute(batch(prompt))[0][0].text for prompt in PROMPTS]
    together = [result.text for result in worker.execute(batch(*PROMPTS))[0]]
    for prompt, own, shared in zip(PROMPTS, alone, together, strict=True):
        assert shared == own, f"{prompt!r} gets another answer in company than alone"
    assert together[0] == " 3 4 5 6 7 8 9"


def test_a_prompt_too_long_is_refused_and_the_others_run(worker: Any) -> None:
    results, work = worker.execute(batch(PROMPTS[0], "word " * 2000, PROMPTS[2]))
    assert [type(result).__name__ for result in results] == ["Completion", "Refusal", "Completion"]
    assert "974" in results[1].message
    assert [results[0].text, results[2].text] == [" 3 4 5 6 7 8 9", " 41 42 43 44"]
    assert work.rows == 2
    results, work = worker.execute(batch("word " * 2000))
    assert work.rows == work.forward_passes == 0


def test_every_row_is_cut_at_its_own_end(worker: Any) -> None:
    rows = [
        *batch("Count from 3 to 5:"),
        *batch("Count from 1 to 60:", max_new_tokens=7),
        *batch("Count from 3 to 5:", max_new_tokens=6, ignore_eos=True),
    ]
    results, work = worker.execute(rows)
    assert [result.tokens for result in results] == [4, 7, 6]
    assert [result.text for result in results[:2]] == [" 3 4 5", " 1 2 3 4 5 6 7"]
    assert work.forward_passes == 7


def test_a_short_answer_beside_a_long_one_idles_46_row_steps(worker: Any) -> None:
    _, work = worker.execute(batch("Count from 3 to 5:", "Count from 20 to 90:"))
    assert work.forward_passes == 50
    assert work.idle_row_steps == 46


def test_the_counters_agree_with_the_model(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    ids: list[Any] = []
    hook = tiny_opt[0].register_forward_hook(lambda *call: ids.append(call[2]["input_ids"]), with_kwargs=True)
    try:
        results, work = worker.execute(batch(*PROMPTS))
    finally:
        hook.remove()
    assert work.forward_passes == len(ids) == max(result.tokens for result in results)
    assert work.row_steps == sum(step.shape[0] for step in ids)
    assert work.positions_computed == sum(step.numel() for step in ids)
    assert work.positions_padding == int((ids[0] == tiny_opt[1].pad_token_id).sum()) > 0
    assert work.idle_row_steps == sum(work.forward_passes - result.tokens for result in results)


@settings(max_examples=40, deadline=None, database=None)
@given(st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_whatever_a_client_may_send_has_a_result(
    tiny_opt: tuple[Any, Any], prompts: list[str], max_new_tokens: int, ignore_eos: bool
) -> None:
    worker = stage.worker.Worker(*tiny_opt)
    results, _ = worker.execute(batch(*prompts, max_new_tokens=max_new_tokens, ignore_eos=ignore_eos))
    assert len(results) == len(prompts)
    for result in results:
        assert isinstance(result, stage.sequence.Completion | stage.sequence.Refusal)
