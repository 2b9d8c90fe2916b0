"""A worker that does what its prompts say. It loads nothing, so a child with it starts in a fraction of a second."""

import os
import time
from typing import Any

from tests.serving import Gate, Stage

stage = Stage("01_single_request")


class Worker:
    """ "hold PORT ..." waits at a gate, "die" ends the process, "raise" raises; every answer is the prompt itself."""

    @classmethod
    def load(cls, model: str, device: str, trace: Any) -> "Worker":
        return cls()

    def execute(self, batch: list[Any]) -> tuple[list[Any], Any]:
        began = time.monotonic()
        for sequence in batch:
            match sequence.prompt.split():
                case ["hold", port, *_]:
                    Gate.knock(int(port))
                case ["die", *_]:
                    os._exit(3)
                case ["raise", *_]:
                    raise RuntimeError("scripted trouble")
        done = [stage.sequence.Completion(sequence.prompt, 1) for sequence in batch]
        work = stage.stats.Work(len(batch), forward_passes=1, row_steps=len(batch), began=began, seconds=1.0)
        return done, work


class DiesLoading(Worker):
    @classmethod
    def load(cls, model: str, device: str, trace: Any) -> "Worker":
        os._exit(4)


class FailsLoading(Worker):
    @classmethod
    def load(cls, model: str, device: str, trace: Any) -> "Worker":
        raise RuntimeError("no room for the weights")


class CannotLoad(Worker):
    @classmethod
    def load(cls, model: str, device: str, trace: Any) -> "Worker":
        raise stage.child.Unusable("that is no model")
