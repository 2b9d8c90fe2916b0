"""transformers' own continuous batching: what `generate_batch` does, with a number of tokens for each prompt."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from .jobs import Generate, answer_jobs

MOST_TOKENS = 8192
"""in its cache"""


def load(model: str, dtype: str) -> Generate:
    """The manager that `generate_batch` makes for each call, made once."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
    greedy = GenerationConfig(do_sample=False, max_new_tokens=16, eos_token_id=-1, pad_token_id=0)
    size = ContinuousBatchingConfig(page_size=32, num_blocks=MOST_TOKENS // 32, max_batch_tokens=1024)
    torch.set_grad_enabled(False)
    manager = loaded.init_continuous_batching(generation_config=greedy, continuous_batching_config=size)
    manager.start()

    def generate(prompts: list[list[int]], tokens: list[int]) -> list[list[int]]:
        asked = [
            manager.add_request(prompt, max_new_tokens=count) for prompt, count in zip(prompts, tokens, strict=True)
        ]
        outputs: dict[str, list[int]] = {}
        while len(outputs) < len(asked):
            if result := manager.get_result(timeout=1):
                if result.error:
                    raise RuntimeError(result.error)
                if result.is_finished():
                    outputs[result.request_id] = result.generated_tokens
            elif not manager.is_running():
                raise RuntimeError("its thread has ended; the error is above")
        return [outputs[name] for name in asked]

    return generate


if __name__ == "__main__":
    answer_jobs(load)
