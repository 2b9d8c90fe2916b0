"""The worker loads the same checkpoint whatever the registry names.

There was one torchvision model when it was written, so its name went into the code.

A user sees: the second torchvision model answers with the labels of the first, under its own id and with confidence.

Seen in the wild: servers that answer with the model they have, whichever the request names, and echo the name
(aprender issue 283, FastFlowLM issue 716). A batch keyed by too little does the same (Ray Serve issue 56633 mixes two
models).
"""

from typing import Any

from ..parts import WORKERS, Parts
from ..torchvision_worker import TorchVisionWorker

TEST = "tests/stage_04/test_workers.py::test_every_model_answers_under_its_own_name"
MESSAGE = "another model answered under this name"


class AlwaysShapes(TorchVisionWorker):
    def __init__(self, metadata: Any, device: str) -> None:
        super().__init__(metadata.model_copy(update={"name": "shapes"}), device)


PARTS = Parts(workers={**WORKERS, "torchvision": AlwaysShapes})
