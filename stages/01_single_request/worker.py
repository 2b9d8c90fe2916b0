"""The child's end of the pipe, and the only file that knows torch: text in, text out.

A worker is handed its model and tokenizer and knows nothing of processes. It must never let one prompt take the
process down: what a prompt does wrong comes back as a `Refusal`.
"""

import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from .child import Unusable
from .sequence import Completion, Refusal, Sequence
from .stats import Work
from .trace import Tracer


class Worker:
    """Runs one sequence a pass: tokenize, one `model.generate`, decode."""

    def __init__(self, model: Any, tokenizer: Any, trace: Tracer | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.trace = trace or Tracer()
        self.context: int = model.config.max_position_embeddings

    @classmethod
    def load(cls, model: str, device: str, trace: Tracer) -> "Worker":
        """Build the worker from a directory or hub id. Raises `Unusable` with one line when that cannot work."""
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
            return cls(loaded.to(device).eval(), AutoTokenizer.from_pretrained(model), trace)
        except (OSError, ValueError, RuntimeError) as exc:
            raise Unusable(f"{model} cannot be loaded on {device}: {str(exc).strip().splitlines()[0]}") from exc

    @torch.inference_mode()
    def execute(self, batch: list[Sequence]) -> tuple[list[Completion | Refusal], Work]:
        """One pass for a batch of one."""
        [sequence] = batch
        began = time.monotonic()
        ids = self.encode(sequence.prompt)
        room = self.context - sequence.max_new_tokens
        self.trace.instant("tokenized", request_id=sequence.request_id, prompt_ids=ids)
        if not 0 < len(ids) <= room:
            message = f"{len(ids)} tokens; must be 1 to {room} (a context of {self.context}, less the new tokens)"
            return [Refusal(message)], Work(began=began)
        with self.trace.span("generate", request_id=sequence.request_id, rows=1) as learned:
            output = self.generate(ids, sequence)
            learned["ids"] = output[len(ids) :]
        seconds, new = time.monotonic() - began, len(output) - len(ids)
        text = self.decode(output, len(ids))
        computed = len(output) - 1  # the last token is never fed back
        work = Work(1, forward_passes=new, row_steps=new, positions_computed=computed, began=began, seconds=seconds)
        return [Completion(text, new)], work

    def encode(self, prompt: str) -> list[int]:
        """Token ids of the whole prompt."""
        return self.tokenizer(prompt)["input_ids"]

    def generate(self, ids: list[int], sequence: Sequence) -> list[int]:
        """Prompt ids and greedy continuation, the stop token included."""
        input_ids = torch.tensor([ids], device=self.model.device)
        options: dict[str, Any] = {"eos_token_id": None} if sequence.ignore_eos else {}
        return self.model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=sequence.max_new_tokens,
            do_sample=False,
            pad_token_id=self.tokenizer.pad_token_id,
            **options,
        )[0].tolist()

    def decode(self, output: list[int], prompt_length: int) -> str:
        """The text of what was generated; the prompt is cut off as ids, because text does not always round-trip."""
        return self.tokenizer.decode(output[prompt_length:], skip_special_tokens=True)
