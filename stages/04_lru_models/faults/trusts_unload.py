"""An answered unload is taken for a finished one.

Triton's repository API answers 200 as soon as it has begun to unload. Until the last request has left, and until the
backend has given its memory back, the index says UNLOADING.

A user sees: out of memory on the Triton server, now and then, when one model takes the place of another.

Seen in the wild: the protocol says so: an unload request returns before the model is unloaded (Triton's model
repository extension; issue 5841).
"""

import time

from ..parts import WORKERS, Parts
from ..triton_worker import TritonWorker

TEST = "tests/stage_04/test_triton_fake.py::test_free_returns_when_the_index_says_unloaded"
MESSAGE = "the next load would have begun while Triton was still unloading"


class TrustsTheAnswer(TritonWorker):
    def wait_unloaded(self) -> None: ...


class AsksWhetherReady(TritonWorker):
    def wait_unloaded(self) -> None:
        while self.ask("GET", f"/v2/models/{self.metadata.name}/ready").is_success:
            time.sleep(0.02)


PARTS = Parts(workers={**WORKERS, "triton": TrustsTheAnswer})


class AskReady:
    """Tempting: wait until the model is not ready. It stops being ready at once, long before it is gone."""

    PARTS = Parts(workers={**WORKERS, "triton": AsksWhetherReady})
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"ask_ready": AskReady}
