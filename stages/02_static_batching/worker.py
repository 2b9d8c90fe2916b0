"""The child's end of the pipe, and the only file that knows torch: text in, text out.

A worker is handed its model and tokenizer and knows nothing of processes. It must never let one prompt take the
process down: what a prompt does wrong comes back as a `Refusal`.
"""

import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteriaList
from transformers.utils import logging

from .child import Unusable
from .sequence import Completion, Refusal, Sequence
from .settings import MAX_NEW_TOKENS
from .stats import Work
from .trace import Tracer


class Worker:
    """Runs one batch a pass: tokenize and pad, one `model.generate`, cut each row at its own end, decode."""

    def __init__(self, model: Any, tokenizer: Any, trace: Tracer | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.trace = trace or Tracer()
        self.context: int = model.config.max_position_embeddings
        stop = model.generation_config.eos_token_id
        self.stop_ids: set[int] = set(stop if isinstance(stop, list) else [stop])

    @classmethod
    def load(cls, model: str, device: str, trace: Tracer) -> "Worker":
        """Build the worker from a directory or hub id. Raises `Unusable` with one line when that cannot work."""
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(model)
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # many base models have none
            return cls(loaded.to(device).eval(), tokenizer, trace)
        except (OSError, ValueError, RuntimeError) as exc:
            raise Unusable(f"{model} cannot be loaded on {device}: {str(exc).strip().splitlines()[0]}") from exc

    @torch.inference_mode()
    def execute(self, batch: list[Sequence]) -> tuple[list[Completion | Refusal], Work]:
        """One pass. A prompt that does not fit is refused; the others run without it."""
        began = time.monotonic()
        results: dict[str, Completion | Refusal] = {}
        rows: list[tuple[Sequence, list[int]]] = []
        for sequence in batch:
            ids = self.encode(sequence.prompt)
            room = self.context - MAX_NEW_TOKENS
            self.trace.instant("tokenized", request_id=sequence.request_id, prompt_ids=ids)
            if 0 < len(ids) <= room:
                rows.append((sequence, ids))
            else:
                why = f"a context of {self.context}, less {MAX_NEW_TOKENS} new tokens"
                message = f"{len(ids)} tokens; must be 1 to {room} ({why})"
                results[sequence.request_id] = Refusal(message)
        work = Work(began=began)
        if rows:
            completions, work = self.run(rows, began)
            results |= {sequence.request_id: done for (sequence, _), done in zip(rows, completions, strict=True)}
        return [results[sequence.request_id] for sequence in batch], work

    def run(self, rows: list[tuple[Sequence, list[int]]], began: float) -> tuple[list[Completion], Work]:
        """Pad, generate, and cut each row at its own end. Counts what the cutting threw away."""
        input_ids, mask = self.pad([ids for _, ids in rows])
        with self.trace.span("generate", request_ids=[s.request_id for s, _ in rows], rows=len(rows)) as learned:
            output = self.generate(input_ids, mask, [sequence for sequence, _ in rows])
            learned["steps"] = steps = output.shape[1] - input_ids.shape[1]
        seconds = time.monotonic() - began
        new = [
            self.cut(row, sequence)
            for row, (sequence, _) in zip(output[:, input_ids.shape[1] :].tolist(), rows, strict=True)
        ]
        work = Work(
            rows=len(rows),
            forward_passes=steps,
            row_steps=steps * len(rows),
            positions_computed=input_ids.numel() + (steps - 1) * len(rows),  # the last token is never fed back
            positions_padding=input_ids.numel() - sum(len(ids) for _, ids in rows),
            idle_row_steps=sum(steps - len(ids) for ids in new),
            began=began,
            seconds=seconds,
        )
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in new]
        return [Completion(text, len(ids)) for text, ids in zip(texts, new, strict=True)], work

    def encode(self, prompt: str) -> list[int]:
        """Token ids of the whole prompt."""
        return self.tokenizer(prompt)["input_ids"]

    def pad(self, prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and attention mask, both [rows, longest prompt]; padding on the left, so that every row ends in text."""
        padded = self.tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
        return padded["input_ids"].to(self.model.device), padded["attention_mask"].to(self.model.device)

    def generate(self, input_ids: torch.Tensor, mask: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
        """Prompts and greedy continuations, [rows, prompt + steps]; it returns when the last row is done."""
        prompt = input_ids.shape[1]

        def finished(ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
            rows = zip(ids[:, prompt:].tolist(), sequences, strict=True)
            return torch.tensor([self.is_finished(row, sequence) for row, sequence in rows], device=ids.device)

        return self.model.generate(
            input_ids,
            attention_mask=mask,
            max_new_tokens=max(sequence.max_new_tokens for sequence in sequences),
            do_sample=False,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=None,  # each row ends by its own rule
            stopping_criteria=StoppingCriteriaList([finished]),
        )

    def is_finished(self, ids: list[int], sequence: Sequence) -> bool:
        """Whether a row ends with the newest of its ids, by its limit or its stop token."""
        return len(ids) >= sequence.max_new_tokens or (ids[-1] in self.stop_ids and not sequence.ignore_eos)

    def cut(self, ids: list[int], sequence: Sequence) -> list[int]:
        """A row's own ids, up to the one that finished it; what follows was only waiting for the others."""
        ends = (end for end in range(1, len(ids)) if self.is_finished(ids[:end], sequence))
        return ids[: next(ends, len(ids))]
