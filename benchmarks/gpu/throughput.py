"""07 The engine against transformers' own continuous batching, `generate_batch`: same model, prompts and lengths."""

import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .models import Engine, random_model
from .rows import Row
from .timing import synchronize

ROUNDS = 2
"""the second counts: the first one compiles, records and allocates"""


def check(device: str) -> Iterator[Row]:
    """Prompts of different lengths, all at once, each answered with the same number of tokens. No prefix is kept."""
    real = device == "cuda"
    count, longest, tokens = (64, 512, 128) if real else (3, 20, 4)
    draw = random.Random(1)
    lengths = [draw.randint(longest // 16 + 1, longest) for _ in range(count)]
    prompts = [[draw.randint(2, 299) for _ in range(length)] for length in lengths]
    model = random_model("llama", device, torch.bfloat16 if real else torch.float32, small=not real)
    theirs = rate(lambda: generate_batch(model, prompts, tokens), tokens, device)
    free(device)
    blocks = sum(-(-(length + tokens) // 16) for length in lengths) + count
    engine = Engine(model, num_gpu_blocks_override=blocks, max_num_seqs=count, enable_prefix_caching=False)
    ours = rate(lambda: engine.answer(prompts, tokens), tokens, device)
    told = f"{ours:,.0f} tokens/s against {theirs:,.0f} of generate_batch, {ours / theirs:.1f} times"
    figures = {"tokens_per_second": ours, "generate_batch_tokens_per_second": theirs}
    yield Row("07 throughput", f"llama, {count} prompts", told, True, figures)


def generate_batch(model: Any, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """What transformers makes of the prompts: as it decides by itself on a GPU, with a small cache elsewhere."""
    from transformers.generation.configuration_utils import ContinuousBatchingConfig, GenerationConfig

    config = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
    small = None if model.device.type == "cuda" else ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64)
    options = {"generation_config": config, "continuous_batching_config": small, "progress_bar": False}
    found = model.generate_batch(prompts, **options)
    return [each.generated_tokens for each in found.values()]


def rate(work: Callable[[], list[list[int]]], tokens: int, device: str) -> float:
    """Tokens a second. Raises `RuntimeError` unless every answer has its length."""
    count, took = 0, 0.0
    for _ in range(ROUNDS if device == "cuda" else 1):
        synchronize(device)
        began = time.perf_counter()
        answers = work()
        synchronize(device)
        count, took = len(answers), time.perf_counter() - began
        if wrong := [len(answer) for answer in answers if len(answer) != tokens]:
            raise RuntimeError(f"answers of {wrong[0]} tokens where {tokens} were asked for")
    return tokens * count / took


def free(device: str) -> None:
    """Give memory back before somebody else needs it."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
