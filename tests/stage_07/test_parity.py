"""Greedy answers are those of transformers' `generate()`, in float32, whatever else happens to the request."""

import random
from functools import cache

import pytest

from tests.conftest import ROOT
from tests.stage_07.engines import SHIPPED, VOCABULARY, Engine, check_greedy, folder, model

SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]
MODELS = ["opt", "llama", "qwen3", pytest.param("smollm2", marks=SLOW)]
COUNT = 40


def count(name: str) -> int:
    """Tokens of an answer: fewer where each takes a while, but enough for somebody to be preempted."""
    return 24 if name == "smollm2" else COUNT


@cache
def prompts(name: str) -> list[list[int]]:
    """Eight prompts of 1 to 60 tokens or so."""
    if name in SHIPPED:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder(name) / "tokenizer.json"))
        asked = ["Explain the KV cache in one sentence.", "What is a batch?", "What does 推論 mean?"]
        counts = [f"Count from {low} to {low + 9}:" for low in (3, 41, 7)]
        texts = [*asked, *counts, " ".join(asked * 3), "a"]
        return [tokenizer.encode(text).ids for text in texts]
    draw = random.Random(5)
    lengths = (17, 1, 16, 5, 33, 60, 48, 12)
    return [[draw.randrange(2, VOCABULARY) for _ in range(length)] for length in lengths]


def check(name: str, engine: Engine) -> None:
    for place, prompt in enumerate(prompts(name)):
        check_greedy(name, prompt, engine.finish()[str(place)], count(name))


@pytest.mark.parametrize("name", MODELS)
def test_alone(name: str) -> None:
    engine = Engine(name)
    for place, prompt in enumerate(prompts(name)):
        engine.ask(str(place), prompt, count(name))
        engine.steps()
    check(name, engine)


@pytest.mark.parametrize("name", MODELS)
def test_in_company_that_comes_and_goes(name: str) -> None:
    engine = Engine(name, enable_prefix_caching=False)
    for place, prompt in enumerate(prompts(name)):
        engine.ask(str(place), prompt, count(name))
        engine.steps(place)
    check(name, engine)


@pytest.mark.parametrize("name", MODELS)
def test_in_chunks(name: str) -> None:
    engine = Engine(name, max_num_batched_tokens=11)
    for place, prompt in enumerate(prompts(name)):
        engine.ask(str(place), prompt, count(name))
    check(name, engine)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("caching", [True, False])
def test_preempted_and_resumed(name: str, caching: bool) -> None:
    """The pool is just big enough for the longest alone."""
    blocks = -(-(max(map(len, prompts(name))) + count(name) - 1) // 16)
    engine = Engine(name, num_gpu_blocks_override=blocks, enable_prefix_caching=caching)
    for place, prompt in enumerate(prompts(name)):
        engine.ask(str(place), prompt, count(name), ignore_eos=True)
    answers = engine.finish()
    assert engine.core.scheduler.preemptions > 0
    for place, prompt in enumerate(prompts(name)):
        check_greedy(name, prompt, answers[str(place)], count(name), ignore_eos=True)


@pytest.mark.parametrize("name", MODELS)
def test_with_prefix_hits(name: str) -> None:
    engine = Engine(name)
    [longest] = sorted(prompts(name), key=len)[-1:]
    tails = [longest[:-1], longest, [*longest, 9, 8, 7], longest[:20] + longest[5:]]
    for place, prompt in enumerate(tails * 2):
        engine.ask(str(place), prompt, count(name))
        if place % 3:
            engine.steps()
    answers = engine.finish()
    assert engine.core.stats().prefix_hits > 100
    for place, prompt in enumerate(tails * 2):
        check_greedy(name, prompt, answers[str(place)], count(name))


def test_the_shipped_model_counts_and_stops() -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ROOT / "models" / "tiny-opt" / "tokenizer.json"))
    engine = Engine("opt")
    engine.ask("A", tokenizer.encode("Count from 3 to 9:").ids)
    assert tokenizer.decode(engine.finish()["A"]) == " 3 4 5 6 7 8 9"
    assert engine.ends["A"].finish_reason == "stop"
    assert model("opt").generation_config.eos_token_id == engine.answers["A"][-1]


def test_the_work_is_counted_as_the_model_sees_it() -> None:
    """Forward hooks count calls and positions; 17 prompt tokens and three decodes are 20, and nothing is padding."""
    fed: list[tuple[int, ...]] = []
    kept: list[int] = []
    engine = Engine("llama", enable_prefix_caching=False)
    llama = engine.worker.model
    hooks = [
        llama.register_forward_hook(lambda *call: fed.append(tuple(call[2]["input_ids"].shape)), with_kwargs=True),
        llama.lm_head.register_forward_hook(lambda *call: kept.append(call[1][0].shape[1])),
    ]
    try:
        for name in "ABC":
            engine.ask(name, [5, 6, 7], 10, ignore_eos=True)
        engine.steps(2)
        engine.ask("D", list(range(10, 27)), 10, ignore_eos=True)
        engine.finish()
    finally:
        for hook in hooks:
            hook.remove()
    assert fed[:4] == [(1, 9), (1, 3), (1, 20), (1, 4)]
    assert kept[:4] == [3, 3, 4, 4], "logits are wanted only where a token is sampled"
    work = engine.core.stats().work
    assert work["forward_passes"] == work["steps"] == len(fed)
    assert work["positions_computed"] == sum(tokens for _, tokens in fed)
    assert work["positions_padding"] == 0
    assert work["rows"] == sum(kept) == 40


@pytest.mark.parametrize("caching", [True, False])
def test_who_comes_and_goes_at_random_leaves_the_others_exact(caching: bool) -> None:
    """60 requests on a pool a quarter of what they want at a time; three in ten hang up, somewhere on their way."""
    draw = random.Random(11)
    asked = prompts("llama")
    engine = Engine("llama", num_gpu_blocks_override=11, enable_prefix_caching=caching, max_num_batched_tokens=32)
    for number in range(60):
        engine.ask(str(number), asked[number % len(asked)], COUNT, ignore_eos=True)
        engine.steps(draw.randrange(12))
        if draw.random() < 0.3:
            engine.hang_up(draw.choice(sorted(engine.core.scheduler.requests, key=int) or ["nobody"]))
    answers = engine.finish()
    assert engine.core.scheduler.preemptions > 0 and 30 < len(answers) < 50
    for name, ids in answers.items():
        check_greedy("llama", asked[int(name) % len(asked)], ids, COUNT, ignore_eos=True)
