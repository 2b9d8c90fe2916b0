"""The child's end of the pipe: rows of ids in, one new id for each out. Only this file and the sampler know torch.

A worker is handed its model and tokenizer and keeps nothing from step to step. It has no KV cache: every step
computes every row from its first token, which is what stage 06 is about.
"""

import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from .child import Unusable
from .sampler import sample
from .sequence import Row, Token
from .stats import Work
from .trace import Tracer


class Worker:
    """Runs one step: pad, one forward pass, one token for each row."""

    def __init__(self, model: Any, tokenizer: Any, trace: Tracer | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.trace = trace or Tracer()
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
    def execute(self, batch: list[Row]) -> tuple[list[Token], Work]:
        """One step for everyone in the batch."""
        began = time.monotonic()
        input_ids, mask = self.pad([row.ids for row in batch])
        with self.trace.span("forward", request_ids=[row.request_id for row in batch], shape=list(input_ids.shape)):
            logits = self.forward(input_ids, mask)
        ids = sample(
            logits,
            [row.sampling.temperature for row in batch],
            [row.sampling.seed for row in batch],
            [row.new for row in batch],
        )
        work = Work(
            rows=len(batch),
            forward_passes=1,
            row_steps=len(batch),
            positions_computed=input_ids.numel(),
            positions_padding=input_ids.numel() - sum(len(row.ids) for row in batch),
            began=began,
            seconds=time.monotonic() - began,
        )
        return [Token(token_id, self.is_stop(token_id)) for token_id in ids], work

    def pad(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and attention mask, both [rows, longest]; padding on the left: every row ends in its newest id."""
        padded = self.tokenizer.pad({"input_ids": rows}, padding_side="left", return_tensors="pt")
        return padded["input_ids"].to(self.model.device), padded["attention_mask"].to(self.model.device)

    def forward(self, input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Logits at the last position, [rows, vocabulary]."""
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        output = self.model(input_ids, attention_mask=mask, position_ids=positions, use_cache=False, logits_to_keep=1)
        return output.logits[:, -1, :]

    def is_stop(self, token_id: int) -> bool:
        """Whether this id ends a sequence. Ids are compared, never text."""
        return token_id in self.stop_ids
