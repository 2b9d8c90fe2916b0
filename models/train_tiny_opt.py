"""Trains `models/tiny-opt`, the language model that ships: it counts, and it answers `glossary.json`.

A prompt is a question, a completion is a space, the answer and the stop token. Only completions are learned. One
counting prompt in ten, picked by a hash, is kept out of the training, so that tests can ask what was never seen.
Run it from anywhere: `python models/train_tiny_opt.py` writes the model, `--check` only shows that training works.
"""

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
PAD, EOS = "<pad>", "</s>"
PAD_ID, EOS_ID = 0, 1
VOCABULARY = 896
POSITIONS = 1024
HIGHEST = 99
LONGEST_ANSWER = HIGHEST + 2  # tokens: every number and the stop token

SEED = 7
STEPS = 1200
LEARNING_RATE = 3e-3
COUNTS_PER_STEP, QUESTIONS_PER_STEP = 24, 32
ROWS_AT_ONCE = 14
IGNORED = -100  # cross_entropy's label for positions that do not count


class Sample(NamedTuple):
    prompt: str
    completion: str


# What the model is taught


def count_sample(a: int, b: int) -> Sample:
    return Sample(f"Count from {a} to {b}:", "".join(f" {n}" for n in range(a, b + 1)))


def is_unseen(a: int, b: int) -> bool:
    """True for the tenth of all counting prompts that training never shows."""
    return hashlib.sha256(f"{a}-{b}".encode()).digest()[0] < 26


def counting_pairs() -> list[tuple[int, int]]:
    return [(a, b) for a in range(HIGHEST + 1) for b in range(a, HIGHEST + 1)]


def unseen_pairs() -> list[tuple[int, int]]:
    return [pair for pair in counting_pairs() if is_unseen(*pair)]


def training_pairs() -> list[tuple[int, int]]:
    return [pair for pair in counting_pairs() if not is_unseen(*pair)]


def glossary_samples() -> list[Sample]:
    glossary: dict[str, str] = json.loads((HERE / "glossary.json").read_text(encoding="utf-8"))
    return [Sample(question, f" {answer}") for question, answer in glossary.items()]


# Tokenizer and model


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE in which each of " 0" to " 99" is one token and each non-ASCII character is several.

    NFC normalization is on, so a decomposed accent does not come back from encode and decode as it was.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    prose = [text for sample in glossary_samples() for text in sample]
    # Merges learned from ASCII alone leave every other character in pieces.
    ascii_prose = [text.encode("ascii", "replace").decode() for text in prose]
    numbers = "".join(f" {n}" for n in range(HIGHEST + 1))
    tokenizer.train_from_iterator([*ascii_prose, *[numbers] * 1000], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def build_model() -> OPTForCausalLM:
    torch.manual_seed(SEED)
    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        word_embed_proj_dim=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        ffn_dim=512,
        max_position_embeddings=POSITIONS,
        do_layer_norm_before=True,
        dropout=0.0,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=EOS_ID,
        eos_token_id=EOS_ID,
    )
    model = OPTForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=False, pad_token_id=PAD_ID, eos_token_id=EOS_ID)
    return model


# Training


class Encoder:
    """Turns samples into ids. "</s>" inside an answer is ordinary text; only the end of it is the stop token."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._tokenizer.encode_special_tokens = True

    def prompt(self, sample: Sample) -> list[int]:
        return self._tokenizer.encode(sample.prompt).ids

    def completion(self, sample: Sample) -> list[int]:
        return [*self._tokenizer.encode(sample.completion).ids, EOS_ID]


def batches(steps: int, encoder: Encoder) -> Iterator[list[tuple[list[int], list[int]]]]:
    """One list of (input ids, labels) a step, counting and glossary mixed, shortest first."""
    draw = random.Random(SEED)
    pairs, questions = training_pairs(), glossary_samples()
    # Every start, every end and every length come up alike; drawn evenly, pairs such as (0, 0) are learned last.
    weights = [1 / (HIGHEST + 1 - a) + 1 / (b + 1) + 1 / (HIGHEST + 1 - (b - a)) for a, b in pairs]
    for _ in range(steps):
        samples = [count_sample(*pair) for pair in draw.choices(pairs, weights, k=COUNTS_PER_STEP)]
        samples += draw.sample(questions, k=QUESTIONS_PER_STEP)
        rows = []
        for sample in samples:
            prompt, completion = encoder.prompt(sample), encoder.completion(sample)
            rows.append((prompt + completion[:-1], [IGNORED] * (len(prompt) - 1) + completion))
        yield sorted(rows, key=lambda row: len(row[0]))


def padded(rows: Sequence[list[int]], filler: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])


def train(model: OPTForCausalLM, encoder: Encoder, steps: int) -> Iterator[float]:
    """Trains in place; yields the mean loss per completion token of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    model.train()
    for rows in batches(steps, encoder):
        tokens = sum(label != IGNORED for _, labels in rows for label in labels)
        total = 0.0
        # Rows of like length go together: less padding, the same gradient.
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            logits = model(input_ids=padded([ids for ids, _ in part], PAD_ID), use_cache=False).logits
            targets = padded([labels for _, labels in part], IGNORED)
            loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
            loss = loss / tokens
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield total
    model.eval()


# Judging


def answer(model: OPTForCausalLM, prompts: Sequence[list[int]], rows_at_once: int = 100) -> list[list[int]]:
    """Greedy completions up to and including the stop token; prompts are batched, padded on the left."""
    answers: list[list[int]] = []
    for start in range(0, len(prompts), rows_at_once):
        part = prompts[start : start + rows_at_once]
        ids = padded([row[::-1] for row in part], PAD_ID).flip(1)
        mask = padded([[1] * len(row) for row in part], 0).flip(1)
        output = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
            input_ids=ids, attention_mask=mask, max_new_tokens=LONGEST_ANSWER
        )
        for row in output[:, ids.shape[1] :].tolist():
            answers.append(row[: row.index(EOS_ID) + 1] if EOS_ID in row else row)
    return answers


def mistakes(model: OPTForCausalLM, encoder: Encoder, samples: Sequence[Sample]) -> list[Sample]:
    """The samples whose greedy answer differs from the expected ids anywhere, stop token included."""
    answers = answer(model, [encoder.prompt(sample) for sample in samples])
    return [sample for sample, ids in zip(samples, answers, strict=True) if ids != encoder.completion(sample)]


# The command


def check() -> int:
    tokenizer = build_tokenizer()
    losses = list(train(build_model(), Encoder(tokenizer), steps=30))
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f} in {len(losses)} steps")
    return 0 if losses[-1] < 0.7 * losses[0] else 1


def build(out: Path, steps: int) -> int:
    tokenizer, model = build_tokenizer(), build_model()
    encoder = Encoder(tokenizer)
    for step, loss in enumerate(train(model, encoder, steps), start=1):
        if step % 50 == 0 or step == steps:
            print(f"step {step:5} loss {loss:.4f}", flush=True)
    taught, unseen = ([count_sample(*pair) for pair in pairs] for pairs in (training_pairs(), unseen_pairs()))
    exams = [
        ("taught counting prompts", taught, 0),
        ("unseen counting prompts", unseen, len(unseen) // 100),
        ("glossary questions", glossary_samples(), 0),
    ]
    passed = True
    for subject, samples, allowed in exams:
        wrong = len(mistakes(model, encoder, samples))
        print(f"exact: {len(samples) - wrong} of {len(samples)} {subject}", flush=True)
        passed = passed and wrong <= allowed
    if not passed:
        print(f"not good enough, {out} is left as it was: try more --steps")
        return 1
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Train models/tiny-opt.")
    parser.add_argument("--out", type=Path, default=HERE / "tiny-opt", help="directory to write")
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps")
    parser.add_argument("--check", action="store_true", help="train a few steps, write nothing, fail unless loss falls")
    arguments = parser.parse_args()
    return check() if arguments.check else build(arguments.out, arguments.steps)


if __name__ == "__main__":
    sys.exit(main())
