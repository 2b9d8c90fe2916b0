"""Text classifiers of the transformers library, from a directory or a hub id."""

import threading
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from .errors import Refused
from .worker import Prediction, Worker, best

LOADING = threading.Lock()
"""while transformers loads a model, it changes things that all threads share, so two loads spoil each other (its issue
41782: parts of a model are left without data)"""


class TransformersWorker(Worker):
    """Text in, label out."""

    def check(self) -> None:
        look(self)

    def load(self) -> None:
        self.tokenizer, self.model = pretrained(self, AutoModelForSequenceClassification)
        self.labels = [self.model.config.id2label[place] for place in range(self.model.config.num_labels)]

    def prepare(self, item: Any) -> list[int]:
        """The ids of a text."""
        if not isinstance(item, str) or not item:
            raise Refused("must be a text")
        if any("\ud800" <= character <= "\udfff" for character in item):
            raise Refused("must be a text, not half a surrogate pair")
        ids, room = self.tokenizer(item)["input_ids"], self.model.config.max_position_embeddings
        if len(ids) > room:
            raise Refused(f"{len(ids)} tokens; must be at most {room}")
        return ids

    @torch.inference_mode()
    def predict(self, rows: list[list[int]]) -> list[Prediction]:
        inputs = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(self.device)
        return best(self.labels, self.model(**inputs).logits.softmax(-1).tolist())


def source(worker: Worker) -> str:
    """The model's directory if it is there, else a hub id."""
    return str(worker.metadata.directory) if worker.metadata.directory.is_dir() else worker.metadata.name


def look(worker: Worker) -> None:
    """Find out whether transformers could load this. Raises `LoadFailed`, or what transformers raises."""
    if worker.metadata.directory.is_dir():
        worker.config("model.safetensors", "tokenizer.json")
    AutoConfig.from_pretrained(source(worker))


def pretrained(worker: Worker, kind: Any) -> tuple[Any, Any]:
    """Its tokenizer and its model, ready to be asked; `kind` is one of transformers' Auto classes."""
    logging.disable_progress_bar()
    with LOADING:
        tokenizer = AutoTokenizer.from_pretrained(source(worker))
        model = kind.from_pretrained(source(worker), dtype=torch.float32)
    return tokenizer, model.to(worker.device).eval()
