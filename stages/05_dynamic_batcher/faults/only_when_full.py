"""The batch is run when it is full, and only then.

There is one trigger instead of two. Under load it is never noticed, because batches fill up.

A user sees: the only user of a quiet model waits for company until the client gives up.

Seen in the wild: the reason for Triton's `max_queue_delay_microseconds`, for `batch_wait_timeout_s` in Ray Serve and
for `maxBatchDelay` in TorchServe: each of them bounds the wait for a batch that does not fill.
"""

from typing import Any

from ..batcher import DynamicBatcher
from ..parts import Parts

TEST = "tests/stage_05/test_batcher.py::test_a_lone_input_waits_no_longer_than_the_delay"
MESSAGE = "a lone input was left waiting for company"


class WaitsForCompany(DynamicBatcher):
    def deadline(self, group: list[Any]) -> float:
        return float("inf")


PARTS = Parts(batcher=WaitsForCompany)
