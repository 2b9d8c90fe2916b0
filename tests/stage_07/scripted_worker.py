"""A worker that needs no model and no torch: counts up from the last token, and does as its tokens say."""

import ctypes
import os
from typing import Any

from tests.serving import Stage

POISON, DEADLY, LOST, STUCK = 666, 667, 668, 669
"""tokens at which a step raises, the process ends, the device is lost, and no thread of the process runs any more"""


class Worker:
    """Plays the worker's part in a process of the engine."""

    def __init__(self, config: Any) -> None:
        self.stage = Stage("07_paged_attention")
        blocks = config.num_gpu_blocks_override or 64
        self.limits = self.stage.limits.Limits(config.max_model_len or 256, config.block_size, blocks, vocab_size=1000)
        self.stop_token_ids = [1]
        self.calls: list[list[str]] = []

    @classmethod
    def load(cls, config: Any, parts: Any, trace: Any) -> "Worker":
        if config.model == "unusable":
            raise Stage("07_paged_attention").config.Unusable("there is no such model")
        if config.model == "broken":
            raise RuntimeError("boom")
        return cls(config)

    def execute(self, rows: list[Any]) -> Any:
        self.calls.append([row.request_id for row in rows])
        fed = [token for row in rows for token in row.token_ids]
        if DEADLY in fed:
            os._exit(3)
        if LOST in fed:
            raise self.stage.executor.WorkerDied("the device is lost")
        if STUCK in fed:
            ctypes.PyDLL(None).pause()  # which keeps the GIL
        if POISON in fed:
            raise ValueError("poison")
        step = self.stage.step
        outcomes = [step.Sampled(row.token_ids[-1] + 1) if row.samples else None for row in rows]
        return step.Result(outcomes, len(fed))
