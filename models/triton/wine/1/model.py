"""Tells three wines apart by thirteen measurements, in numpy, inside Triton's Python backend.

Triton starts a process for this file and hands it whole batches of requests. The backend was built for numpy 1:
where TRITON_NUMPY names a folder, numpy is imported from there.
"""

import os
import sys
from pathlib import Path
from typing import Any

if folder := os.environ.get("TRITON_NUMPY"):
    sys.path.insert(0, folder)

import numpy as np
import triton_python_backend_utils as triton  # pyright: ignore[reportMissingImports]


class TritonPythonModel:
    """The name and the three methods are Triton's."""

    def initialize(self, args: dict[str, str]) -> None:
        """Called once, when the model is loaded."""
        self.weights = dict(np.load(Path(__file__).parent / "weights.npz"))

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response a request, of one row or more. All rows are computed at once, or batching would gain nothing."""
        rows = [triton.get_input_tensor_by_name(request, "features").as_numpy() for request in requests]
        scores = self.scores(np.concatenate(rows)).astype(np.float32)
        ends = np.cumsum([len(some) for some in rows])
        return [triton.InferenceResponse([triton.Tensor("scores", some)]) for some in np.split(scores, ends[:-1])]

    def scores(self, features: Any) -> Any:
        """[rows, 13] measurements to [rows, 3] probabilities."""
        hidden = np.maximum(features @ self.weights["weight_0"].T + self.weights["bias_0"], 0)
        logits = hidden @ self.weights["weight_1"].T + self.weights["bias_1"]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
