"""What is resident is written down twice, and a hit reads the other record.

The policy has its entries, and the driver keeps a dictionary of workers for quick access. They agree until the first
eviction, which tells only one of them.

A user sees: a model that has been evicted once fails from then on, and the least recently used order is wrong
before that.

Seen in the wild: vLLM keeps its cache of images twice, in the front end and in the engine; when only one of them has
evicted, requests fail or the engine dies (vLLM issues 31404 and 43941).
"""

from collections.abc import Callable
from typing import Any, TypeVar

from ..parts import Parts
from ..registry import Metadata
from ..residency import Residency
from ..worker import Worker

TEST = "tests/stage_04/test_residency.py::test_an_evicted_worker_is_never_asked_again"
MESSAGE = "an evicted worker was asked as if it were still there"

T = TypeVar("T")


class RemembersWorkers(Residency):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ready_workers: dict[str, Worker] = {}

    async def call(self, metadata: Metadata, work: Callable[[Worker], T], request_id: str) -> T:
        if worker := self.ready_workers.get(metadata.id):
            return await self.on_thread(worker, work, worker)

        def remembered(worker: Worker) -> T:
            self.ready_workers[metadata.id] = worker
            return work(worker)

        return await super().call(metadata, remembered, request_id)


PARTS = Parts(residency=RemembersWorkers)
