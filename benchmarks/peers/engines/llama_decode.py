"""llama.cpp through llama-cpp-python: `llama_decode` over all sequences at once, each for as long as it wants tokens.

Runs in an environment of its own, and gets a GGUF file, whose name says the dtype. All else is llama.cpp's default.
"""

from importlib import import_module
from typing import Any

import numpy as np

from .jobs import THREADS, Generate, answer_jobs

llama: Any = import_module("llama_cpp")  # not in this project's environment
SEQUENCES, LONGEST = 16, 512
BATCH = 2048
"""tokens in one call; as many may be a step's prompts"""


def load(model: str, _dtype: str) -> Generate:
    """The engine with one context, whose memory is emptied before each job."""
    llama.llama_backend_init()
    loaded = llama.llama_model_load_from_file(model.encode(), llama.llama_model_default_params())
    wish = llama.llama_context_default_params()
    wish.n_ctx, wish.n_batch, wish.n_seq_max = SEQUENCES * LONGEST, BATCH, SEQUENCES
    wish.n_threads = wish.n_threads_batch = THREADS
    context = llama.llama_init_from_model(loaded, wish)
    if not context:
        raise RuntimeError(f"llama.cpp cannot load {model}; its error is above")
    batch = llama.llama_batch_init(BATCH, 0, 1)
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(loaded))

    def step(new: dict[int, list[int]], start: dict[int, int]) -> dict[int, int]:
        """The likeliest token of each sequence, given its new ones and the position of the first of them."""
        batch.n_tokens, last = 0, {}
        for sequence, ids in new.items():
            for place, token in enumerate(ids):
                at = batch.n_tokens
                batch.token[at], batch.pos[at], batch.logits[at] = token, start[sequence] + place, False
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
                batch.n_tokens += 1
            last[sequence] = batch.n_tokens - 1
            batch.logits[last[sequence]] = True
        if code := llama.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        logits = {sequence: llama.llama_get_logits_ith(context, at) for sequence, at in last.items()}
        return {sequence: int(np.ctypeslib.as_array(row, (vocabulary,)).argmax()) for sequence, row in logits.items()}

    def generate(prompts: list[list[int]], tokens: list[int]) -> list[list[int]]:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        # Whoever ends first has the highest number: llama.cpp computes sequences together if their numbers have no gap.
        order = sorted(range(len(prompts)), key=lambda place: -tokens[place])
        outputs: dict[int, list[int]] = {sequence: [] for sequence in range(len(order))}
        new = {sequence: prompts[place] for sequence, place in enumerate(order)}
        start = dict.fromkeys(new, 0)
        while new:
            chosen = step(new, start)
            for sequence, token in chosen.items():
                start[sequence] += len(new[sequence])
                outputs[sequence].append(token)
            new = {sequence: [token] for sequence, token in chosen.items()}
            new = {who: ids for who, ids in new.items() if len(outputs[who]) < tokens[order[who]]}
        return [outputs[order.index(place)] for place in range(len(prompts))]

    return generate


if __name__ == "__main__":
    answer_jobs(load)
