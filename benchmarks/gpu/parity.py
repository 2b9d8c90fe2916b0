"""07 Greedy parity: the engine, with graphs and without, says token for token what transformers' `generate` says."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch

from .models import Engine, random_model, tiny_opt
from .rows import Row

SMALL_STEPS = {"num_gpu_blocks_override": 200, "max_num_seqs": 8, "max_num_batched_tokens": 64, "block_size": 12}
"""so that prompts come in chunks, and blocks are no power of two"""
TIE = 1e-4
"""two logits nearer than this may change places, and what follows them is another text"""


def check(device: str) -> Iterator[Row]:
    """Prompts that come in chunks and prompts that do not, in float32, for three families of models."""
    lengths, tokens = ([40, 3, 33, 16, 17, 90, 200], 40) if device == "cuda" else ([40, 3, 17], 12)
    prompts = [[2 + (7 * length + 13 * place) % 250 for place in range(length)] for length in lengths]
    models = {
        "tiny-opt": lambda: tiny_opt(device),
        "llama": lambda: random_model("llama", device, torch.float32, small=True),
        "qwen3": lambda: random_model("qwen3", device, torch.float32, small=True),
    }
    for name, load in models.items():
        reference = load()
        expected = [generated(reference, prompt, tokens) for prompt in prompts]
        for graphs in (False, True):
            triton = find_spec("triton") and (device == "cuda" or name == "llama")  # the interpreter is slow
            backend = "triton" if triton else "torch"
            engine = Engine(load(), graphs, attention_backend=backend, **SMALL_STEPS)
            found = zip(engine.answer(prompts, tokens), expected, strict=True)
            same = sum(agrees(ids, *those) for ids, those in found)
            how = f"{backend}, {'graphs' if graphs else 'eager'}"
            told = f"{same} of {len(prompts)} answers are transformers'"
            yield Row("07 parity", f"{name}, {how}", told, same == len(prompts))


@torch.inference_mode()
def generated(model: Any, prompt: list[int], tokens: int) -> tuple[list[int], list[float]]:
    """What transformers says, and how far ahead of the second each token was."""
    ids = torch.tensor([prompt], device=model.device)
    options = {"do_sample": False, "eos_token_id": None, "max_new_tokens": tokens, "output_logits": True}
    out = model.generate(ids, attention_mask=torch.ones_like(ids), return_dict_in_generate=True, **options)
    best = torch.stack(out.logits)[:, 0].topk(2).values
    return out.sequences[0, len(prompt) :].tolist(), (best[:, 0] - best[:, 1]).tolist()


def agrees(found: list[int], expected: list[int], gaps: list[float]) -> bool:
    """Whether two answers are the same up to a tie."""
    pairs = zip(found, expected, gaps, strict=False)
    apart = next((gap for one, other, gap in pairs if one != other), None)
    return len(found) == len(expected) and (apart is None or apart < TIE)
