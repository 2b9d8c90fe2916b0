"""What is right: transformers' `generate`, one prompt at a time, and by how much each token won against the second."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from .jobs import Generate, answer_jobs


def load(model: str, dtype: str) -> Generate:
    """Answers with ids and gaps: `[[ids], [logit of the likeliest token less that of the next]]` for each prompt."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
    loaded.generation_config.eos_token_id = None

    def generate(prompts: list[list[int]], tokens: list[int]) -> list[list[list[float]]]:
        outputs: list[list[list[float]]] = []
        for prompt, count in zip(prompts, tokens, strict=True):
            wish = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0}
            told = {"output_logits": True, "return_dict_in_generate": True}
            made = loaded.generate(torch.tensor([prompt]), **wish, **told)
            best = torch.cat(made.logits).float().topk(2).values
            outputs.append([made.sequences[0, len(prompt) :].tolist(), (best[:, 0] - best[:, 1]).tolist()])
        return outputs

    return generate


if __name__ == "__main__":
    answer_jobs(load)
