"""A worker that does what its prompts say. It loads nothing, so a child with it starts in a fraction of a second."""

import os
import time
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.serving import Gate, Stage


class Script:
    """Each answer is the prompt itself; "hold PORT ..." waits at a gate first, "die" ends the process, "raise" raises.

    So it goes for the device while loading: "hold PORT" waits at a gate, "needs FILE" is unusable without that file.
    A stage's own subclass says which stage's types it answers with.
    """

    stage: ClassVar[Stage]

    @classmethod
    def load(cls, model: str, device: str, trace: Any) -> Self:
        match device.split():
            case ["hold", port]:
                Gate.knock(int(port))
            case ["needs", file] if not Path(file).exists():
                raise cls.stage.child.Unusable(f"{file} is gone")
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
        done = [self.stage.sequence.Completion(sequence.prompt, 1) for sequence in batch]
        work = self.stage.stats.Work(len(batch), forward_passes=1, row_steps=len(batch), began=began, seconds=1.0)
        return done, work
