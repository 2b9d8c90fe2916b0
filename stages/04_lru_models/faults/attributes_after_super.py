"""The constructor loads, so a subclass that sets its attributes after `super().__init__` comes too late.

The base class calls `load` from its own constructor. Three workers happened to need no attributes of their own; the
next one does, and writes them where everybody writes them.

A user sees: an AttributeError at the first request for a model of the new kind.

Seen in the wild: datasets of PyTorch Geometric, whose constructor calls the subclass's `process` (pyg-team issue 3277).
"Do not call overridable methods in a constructor" is item 19 of Effective Java, for the same reason.
"""

import onnxruntime

from ..onnx_worker import OnnxWorker
from ..parts import WORKERS, Parts
from ..registry import Metadata

TEST = "tests/stage_04/test_workers.py::test_every_kind_of_worker_can_be_built_and_loaded"
MESSAGE = "an attribute was used before it was set"


class LoadsItself(OnnxWorker):
    def __init__(self, metadata: Metadata, device: str) -> None:
        super().__init__(metadata, device)
        self.load()


class PicksProviders(LoadsItself):
    def __init__(self, metadata: Metadata, device: str) -> None:
        super().__init__(metadata, device)
        self.providers = ["CPUExecutionProvider"]

    def load(self) -> None:
        super().load()
        self.model = onnxruntime.InferenceSession(self.metadata.directory / "model.onnx", providers=self.providers)


PARTS = Parts(workers={**WORKERS, "onnx": PicksProviders})
