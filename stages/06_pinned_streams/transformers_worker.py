"""Text classifiers of the transformers library, from a directory or a hub id."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from .errors import Refused
from .worker import Prediction, Worker, best


class TransformersWorker(Worker):
    """Text in, label out."""

    def check(self) -> None:
        if self.metadata.directory.is_dir():
            self.config("model.safetensors", "tokenizer.json")
        try:
            AutoConfig.from_pretrained(self.source())
        except (OSError, ValueError, KeyError) as exc:
            raise self.failed(exc) from exc

    def source(self) -> str:
        """The directory if it is there, else a hub id."""
        return str(self.metadata.directory) if self.metadata.directory.is_dir() else self.metadata.name

    def load(self) -> None:
        logging.disable_progress_bar()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(self.source())
        model: Any = AutoModelForSequenceClassification.from_pretrained(self.source(), dtype=torch.float32)
        self.model = model.to(self.device).eval()
        self.labels = [model.config.id2label[place] for place in range(model.config.num_labels)]

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
