"""The queue belongs to the model's id, not to the worker.

A model that comes back finds the queue that it had before, and that queue still holds the worker that was freed.

A user sees: a model works until it has been evicted once; from then on every request to it fails or hangs.

Seen in the wild: a cache keyed by too little (Ray Serve issue 56633 mixes two models in a batch).
"""

from typing import Any

from ..batching import Batching
from ..parts import Parts
from ..residency import Residency
from ..worker import Worker

TEST = "tests/stage_05/test_residency.py::test_a_reloaded_model_gets_a_fresh_queue"
MESSAGE = "the reloaded model was asked through its old queue"


class KeepsQueues(Residency):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.queues: dict[str, Batching] = {}

    def open_queue(self, worker: Worker) -> Batching:
        if worker.metadata.id not in self.queues:
            self.queues[worker.metadata.id] = super().open_queue(worker)
        return self.queues[worker.metadata.id]


PARTS = Parts(residency=KeepsQueues)
