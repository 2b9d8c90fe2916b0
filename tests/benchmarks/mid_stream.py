"""A worker for stage 03 that fails in the middle of a stream, after two tokens."""

import time
from typing import Any

from tests.serving import Stage

stage = Stage("03_continuous_streaming")


class Worker:
    """Answers with id 24 ("7" of tiny-opt) again and again. Loads nothing."""

    @classmethod
    def load(cls, model: str, device: str, trace: Any) -> "Worker":
        return cls()

    def execute(self, batch: list[Any]) -> tuple[list[Any], Any]:
        if any(row.new == 2 for row in batch):
            raise RuntimeError("scripted trouble")
        work = stage.stats.Work(len(batch), forward_passes=1, row_steps=len(batch), began=time.monotonic())
        return [stage.sequence.Token(24, stop=False) for _ in batch], work
