"""The streaming worker alone, with the shipped model in process: what it computes, and that company changes nothing."""

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.serving import Stage
from tests.stage_06.scripted import shipped

stage = Stage("06_pinned_streams")
pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
PROMPTS = [
    "Count from 3 to 9:",
    "Explain the KV cache in one sentence.",
    "Count from 41 to 44:",
    "What is a batch?",
    "Count from 20 to 60:",
    "a",
    "What does 推論 mean?",
    "Count from 1 to 2:",
]


def make(parts: Any, model: Any, tokenizer: Any, slots: int = 4) -> Any:
    worker = parts.workers["causal-lm"](shipped("tiny-opt", "causal-lm", max_batch=slots), "cpu")
    worker.tokenizer = tokenizer
    worker.start(copy(model))
    return worker


@pytest.fixture
def worker(parts: Any, tiny_opt: tuple[Any, Any]) -> Any:
    return make(parts, *tiny_opt)


def sequence(worker: Any, prompt: str, limit: int = 30, **sampling: Any) -> Any:
    chosen = stage.sequence.Sampling(**{"max_new_tokens": limit, "temperature": 0.0, "seed": 0, **sampling})
    detokenizer, stops = stage.detokenizer.Detokenizer(worker.decode), stage.stop_strings.StopStrings(chosen.stop)
    return stage.sequence.Sequence(worker.prepare(prompt), chosen, None, detokenizer, stops, None, 0.0)


def run(worker: Any, waiting: list[Any], joins: list[int] | None = None) -> list[Any]:
    """Step until all have ended; whoever waits joins when there is a slot, but not before its step."""
    scheduler, works = stage.scheduler.Scheduler(worker.slots, 128), []
    starts = dict(zip(waiting, joins or [0] * len(waiting), strict=True))
    left = list(waiting)
    for step in range(10_000):
        for one in [one for one in left if starts[one] <= step]:
            scheduler.add([one])
            left.remove(one)
        batch = scheduler.schedule()
        if not batch and not left:
            return works
        outcomes, work = worker.execute(batch)
        works.append(work)
        for one, outcome in zip(batch, outcomes, strict=True):
            scheduler.update(one, outcome)
    raise AssertionError("this never ends")


def generated(model: Any, tokenizer: Any, prompt: str, limit: int) -> list[int]:
    ids = tokenizer(prompt, return_tensors="pt")
    whole = model.generate(**ids, do_sample=False, max_new_tokens=limit, eos_token_id=1, pad_token_id=0)
    return whole[0, ids["input_ids"].shape[1] :].tolist()


def llama() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=896,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=512,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("family", ["opt", "llama"])
@pytest.mark.parametrize("joins", [[0] * 8, [0, 1, 1, 4, 9, 10, 20, 40]], ids=["at once", "one by one"])
def test_every_stream_equals_generate_whoever_joins_or_leaves(
    family: str, joins: list[int], tiny_opt: tuple[Any, Any]
) -> None:
    model, tokenizer = tiny_opt if family == "opt" else (llama(), tiny_opt[1])
    worker = make(stage.parts.Parts(), model, tokenizer)
    streams = [sequence(worker, prompt) for prompt in PROMPTS]
    run(worker, streams, joins)
    for prompt, stream in zip(PROMPTS, streams, strict=True):
        assert stream.output_ids == generated(model, tokenizer, prompt, 30), prompt


def test_p_ids_and_n_tokens_compute_p_plus_n_less_one_positions(tiny_opt: tuple[Any, Any]) -> None:
    worker = make(stage.parts.Parts(), *tiny_opt)
    seen: list[torch.Size] = []
    hook = worker.model.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape))
    streams = [sequence(worker, prompt, limit=7 + 5 * place) for place, prompt in enumerate(PROMPTS)]
    works = run(worker, streams, [0, 0, 1, 2, 3, 5, 8, 13])
    hook.remove()
    expected = sum(len(stream.prompt_ids) + len(stream.output_ids) - 1 for stream in streams)
    assert sum(shape.numel() for shape in seen) == expected
    assert sum(work.positions_computed for work in works) == expected
    assert sum(work.forward_passes for work in works) == len(seen)
    assert all(shape[0] == 1 or shape[1] == 1 for shape in seen)
    assert [shape[1] for shape in seen if shape[1] > 1] == [len(s.prompt_ids) for s in streams if len(s.prompt_ids) > 1]


def test_a_stream_ends_at_the_stop_token(worker: Any, tiny_opt: tuple[Any, Any]) -> None:
    stream = sequence(worker, "Count from 3 to 5:", limit=10)
    run(worker, [stream])
    assert len(stream.output_ids) == 4, "ran past the stop token"
    assert tiny_opt[1].decode(stream.output_ids, skip_special_tokens=True) == " 3 4 5"


def test_text_that_spells_the_stop_token_does_not_end_a_stream(tiny_opt: tuple[Any, Any]) -> None:
    worker = make(stage.parts.Parts(), *tiny_opt)
    stream = sequence(worker, "Which token ends an OPT answer?", limit=50)
    run(worker, [stream])
    assert worker.decode(stream.output_ids).endswith("the id, never the text.")


def test_who_ignores_the_stop_token_goes_on(tiny_opt: tuple[Any, Any]) -> None:
    worker = make(stage.parts.Parts(), *tiny_opt)
    stream = sequence(worker, "Count from 3 to 5:", limit=12, ignore_eos=True)
    run(worker, [stream])
    assert len(stream.output_ids) == 12


def test_the_same_seed_gives_the_same_tokens_in_any_company(tiny_opt: tuple[Any, Any]) -> None:
    worker = make(stage.parts.Parts(), *tiny_opt)
    options = {"limit": 15, "temperature": 1.5, "seed": 11, "top_p": 0.9}
    alone, again = (sequence(worker, "What is a queue?", **options) for _ in range(2))
    run(worker, [alone])
    company = [sequence(worker, prompt, temperature=0.9, seed=place) for place, prompt in enumerate(PROMPTS)]
    run(worker, [*company[:2], again, *company[2:]])
    assert again.output_ids == alone.output_ids


def test_slots_are_reserved_in_full_and_freed(tiny_opt: tuple[Any, Any]) -> None:
    worker = make(stage.parts.Parts(), *tiny_opt)
    stream, other = (sequence(worker, "Count from 3 to 9:") for _ in range(2))
    worker.execute([stream, other])
    config = worker.model.config
    a_token = 2 * config.num_hidden_layers * config.hidden_size * 4
    assert worker.kv_bytes() == (4 * worker.context * a_token, 2 * len(stream.prompt_ids) * a_token)
    worker.execute([])
    assert worker.kv_bytes()[1] == 0
    assert worker.streams == []


def test_a_prompt_that_fails_is_its_own_streams_trouble(tiny_opt: tuple[Any, Any]) -> None:
    worker = make(stage.parts.Parts(), *tiny_opt)
    good, bad, late = (sequence(worker, "Count from 3 to 9:") for _ in range(3))
    bad.prompt_ids = [10**6]
    outcomes, _ = worker.execute([good, bad])
    assert isinstance(outcomes[1], stage.errors.WorkerFailed)
    good.output_ids.append(outcomes[0].id)
    run(worker, [late])
    assert late.output_ids == generated(*tiny_opt, "Count from 3 to 9:", 30)


def test_a_step_that_fails_ends_who_took_part_and_nobody_after(tiny_opt: tuple[Any, Any]) -> None:
    worker = make(stage.parts.Parts(), *tiny_opt)
    first, second, late = (sequence(worker, "Count from 3 to 9:") for _ in range(3))
    for one, outcome in zip([first, second], worker.execute([first, second])[0], strict=True):
        one.output_ids.append(outcome.id)
    first.output_ids[-1] = 10**6
    outcomes, _ = worker.execute([first, second])
    assert all(isinstance(outcome, stage.errors.WorkerFailed) for outcome in outcomes)
    assert worker.streams == []
    run(worker, [late])
    assert late.output_ids == generated(*tiny_opt, "Count from 3 to 9:", 30)


def test_models_that_load_at_the_same_time_do_not_spoil_each_other() -> None:
    """Two ids of one checkpoint, asked for at once: transformers' loader is not made for several threads."""

    def first_tokens(_: int) -> list[Any]:
        worker = stage.streaming_worker.StreamingWorker(shipped("tiny-opt", "causal-lm"), "cpu")
        worker.load()
        return worker.execute([sequence(worker, "Count from 3 to 9:")])[0]

    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(first_tokens, range(8))
    assert others == [first] * 7
