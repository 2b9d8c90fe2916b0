"""The shipped language model keeps its promises: it counts, it knows the glossary, and it stops.

Everything is judged on token ids, stop token included, on the files in `models/tiny-opt` as users load them.
"""

import json
import os
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, OPTForCausalLM, PreTrainedTokenizerFast

from models import train_tiny_opt
from models.train_tiny_opt import EOS_ID, HIGHEST, Encoder, Sample, answer, count_sample, glossary_samples, mistakes

ROOT = Path(__file__).resolve().parents[2]
TINY_OPT = ROOT / "models" / "tiny-opt"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model gains nothing from a second thread, and loses much where another process wants that core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> OPTForCausalLM:
    model = AutoModelForCausalLM.from_pretrained(TINY_OPT)
    assert isinstance(model, OPTForCausalLM)
    return model.eval()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(TINY_OPT)


@pytest.fixture(scope="module")
def encoder(tokenizer: PreTrainedTokenizerFast) -> Encoder:
    return Encoder(tokenizer)


def margin(model: OPTForCausalLM, encoder: Encoder, sample: Sample) -> float:
    """The smallest gap between the best and the second-best logit along the right answer."""
    prompt, completion = encoder.prompt(sample), encoder.completion(sample)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + completion[:-1]])).logits[0, len(prompt) - 1 :]
    best = logits.topk(2).values
    return (best[:, 0] - best[:, 1]).min().item()


# What it says


def test_it_counts_where_it_was_never_taught(model: OPTForCausalLM, encoder: Encoder) -> None:
    pairs = random.Random(0).sample(train_tiny_opt.unseen_pairs(), 300)
    wrong = mistakes(model, encoder, [count_sample(*pair) for pair in pairs])
    assert len(wrong) <= 3, f"{len(wrong)} of 300 wrong, such as {wrong[0].prompt!r}"


def edges() -> list[Sample]:
    """One number alone, from the very start, to the very end: the pairs that random draws seldom hit."""
    pairs = {pair for n in range(HIGHEST + 1) for pair in ((n, n), (0, n), (n, HIGHEST))}
    return [count_sample(*pair) for pair in sorted(pairs)]


def test_it_counts_at_the_edges(model: OPTForCausalLM, encoder: Encoder) -> None:
    assert mistakes(model, encoder, edges()) == []


def test_it_counts_as_far_as_it_can(model: OPTForCausalLM, encoder: Encoder) -> None:
    longest = count_sample(0, HIGHEST)
    assert len(encoder.completion(longest)) == 101
    assert mistakes(model, encoder, [longest]) == []


def test_it_knows_the_whole_glossary(model: OPTForCausalLM, encoder: Encoder) -> None:
    assert mistakes(model, encoder, glossary_samples()) == []


def test_company_in_a_batch_changes_no_answer(model: OPTForCausalLM, encoder: Encoder) -> None:
    samples = [count_sample(3, 9), *glossary_samples()[:3], count_sample(0, 60), count_sample(99, 99)]
    prompts = [encoder.prompt(sample) for sample in samples]
    assert answer(model, prompts) == [answer(model, [prompt])[0] for prompt in prompts]


def test_its_choices_are_clear(model: OPTForCausalLM, encoder: Encoder) -> None:
    """Parity tests compare greedy answers across batch shapes: rounding must never decide between two tokens."""
    samples = [*glossary_samples(), *edges(), *(count_sample(a, b) for a, b in train_tiny_opt.unseen_pairs()[::10])]
    assert min(margin(model, encoder, sample) for sample in samples) > 0.1


def test_a_wrong_answer_counts_as_wrong(model: OPTForCausalLM, encoder: Encoder) -> None:
    right = count_sample(3, 9)
    text_differs = right._replace(completion=" 3 4 5 6 7 8 8")
    stops_early = right._replace(completion=" 3 4 5 6 7 8")
    stops_late = right._replace(completion=" 3 4 5 6 7 8 9 10")
    assert mistakes(model, encoder, [text_differs, right, stops_early, stops_late]) == [
        text_differs,
        stops_early,
        stops_late,
    ]


def test_an_untrained_model_gets_everything_wrong(encoder: Encoder) -> None:
    samples = [count_sample(3, 9), *glossary_samples()[:3]]
    assert mistakes(train_tiny_opt.build_model().eval(), encoder, samples) == samples


# What it was taught


def test_unseen_prompts_were_kept_out_of_the_training(encoder: Encoder) -> None:
    unseen, taught = set(train_tiny_opt.unseen_pairs()), set(train_tiny_opt.training_pairs())
    assert not unseen & taught
    assert len(unseen | taught) == 5050
    assert len(unseen) >= 300
    prompts = {tuple(encoder.prompt(count_sample(*pair))) for pair in unseen}
    for rows in train_tiny_opt.batches(20, encoder):
        for ids, labels in rows:
            start = next(i for i, label in enumerate(labels) if label != train_tiny_opt.IGNORED)
            assert tuple(ids[: start + 1]) not in prompts


def test_the_glossary_is_what_other_tests_lean_on(encoder: Encoder) -> None:
    samples = glossary_samples()
    assert len(samples) >= 100
    assert "Explain the KV cache in one sentence." in [sample.prompt for sample in samples]
    assert sum(not sample.completion.isascii() for sample in samples) >= 10
    assert any(not sample.prompt.isascii() for sample in samples)
    for sample in samples:
        assert unicodedata.is_normalized("NFC", sample.prompt + sample.completion)
        assert len(encoder.completion(sample)) < 50


def test_every_answer_of_the_glossary_is_one_sentence() -> None:
    for sample in glossary_samples():
        assert re.fullmatch(r" [^.!?]+(?:[.!?](?! )[^.!?]+)*\.", sample.completion), sample.completion


@pytest.mark.parametrize(
    ("kind", "pattern"), [("accents", "LATIN .* WITH "), ("Japanese", "CJK UNIFIED|HIRAGANA|KATAKANA"), ("emoji", "")]
)
def test_answers_have_characters_of_every_kind_that_spans_tokens(kind: str, pattern: str) -> None:
    """Several answers each, and each character in more than one byte, so in more than one token."""

    def has(text: str) -> bool:
        if kind == "emoji":
            return any(unicodedata.category(character) == "So" and ord(character) > 0xFFFF for character in text)
        return any(re.search(pattern, unicodedata.name(character, "")) for character in text)

    assert sum(has(sample.completion) for sample in glossary_samples()) >= 3


def test_training_lowers_the_loss() -> None:
    command = [sys.executable, ROOT / "models" / "train_tiny_opt.py", "--check"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_fails_if_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_tiny_opt, "LEARNING_RATE", 0.0)
    assert train_tiny_opt.check() == 1


# The files


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in TINY_OPT.iterdir()) <= 8_000_000


def test_it_is_stored_in_float32_and_decodes_greedily() -> None:
    assert json.loads((TINY_OPT / "config.json").read_text())["dtype"] == "float32"
    generation = json.loads((TINY_OPT / "generation_config.json").read_text())
    assert generation["do_sample"] is False
    assert (generation["pad_token_id"], generation["eos_token_id"]) == (0, 1)


def test_its_tokenizer_pads_on_the_right_and_prepends_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.padding_side == "right"
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    ids, mask = tokenizer(["Count from 3 to 9:", ":"], padding=True).values()
    assert ids[1] == [*tokenizer.encode(":"), *[0] * (len(ids[0]) - 1)]
    assert mask[1] == [1, *[0] * (len(ids[0]) - 1)]


def test_its_tokenizer_works_without_transformers(tokenizer: PreTrainedTokenizerFast) -> None:
    bare = Tokenizer.from_file(str(TINY_OPT / "tokenizer.json"))
    assert bare.padding is None
    assert bare.truncation is None
    for sample in glossary_samples():
        ids = bare.encode(sample.prompt).ids
        assert ids == tokenizer.encode(sample.prompt)
        assert bare.decode(ids) == sample.prompt


def test_each_number_is_one_token(encoder: Encoder) -> None:
    assert {len(encoder.completion(Sample("", f" {n}"))) for n in range(HIGHEST + 1)} == {2}


@pytest.mark.parametrize("character", ["é", "ï", "語", "推", "🚀", "🧠"])
def test_a_character_beyond_ascii_is_several_tokens(tokenizer: PreTrainedTokenizerFast, character: str) -> None:
    assert len(tokenizer.encode(character)) == len(character.encode())


def test_text_comes_back_composed(tokenizer: PreTrainedTokenizerFast) -> None:
    composed = "naïve café"
    decomposed = unicodedata.normalize("NFD", composed)
    assert decomposed != composed
    assert tokenizer.decode(tokenizer.encode(decomposed)) == composed


def test_a_stop_token_spelled_out_in_an_answer_is_ordinary_text(encoder: Encoder) -> None:
    spelled = [sample for sample in glossary_samples() if "</s>" in sample.completion]
    assert spelled
    for sample in spelled:
        assert encoder.completion(sample).index(EOS_ID) == len(encoder.completion(sample)) - 1
