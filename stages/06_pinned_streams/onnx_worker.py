"""Tabular classifiers in ONNX: rows of numbers in, probabilities out, run by onnxruntime."""

from typing import Any

import numpy as np
import onnxruntime

from .worker import Prediction, Worker, best, numbers


class OnnxWorker(Worker):
    """A list of numbers in, label out."""

    def check(self) -> None:
        if "labels" not in self.config("model.onnx"):
            raise self.failed("config.json lacks labels")

    def load(self) -> None:
        self.labels = self.config()["labels"]
        self.model = onnxruntime.InferenceSession(self.metadata.directory / "model.onnx")
        self.features = self.model.get_inputs()[0]

    def prepare(self, item: Any) -> np.ndarray:
        """[features]"""
        return np.array(numbers(item, self.features.shape[1]), np.float32)

    def predict(self, rows: list[np.ndarray]) -> list[Prediction]:
        return best(self.labels, self.model.run(None, {self.features.name: np.stack(rows)})[0].tolist())

    def size(self) -> int:
        return (self.metadata.directory / "model.onnx").stat().st_size
