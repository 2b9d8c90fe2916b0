"""Stage 03's scripted worker for a real child: it repeats the prompt, token by token, and then stops. No torch."""

import os
import time
from typing import Any

from tokenizers import Tokenizer

from tests.scripted import Script
from tests.serving import ROOT, Gate, Stage

stage = Stage("03_continuous_streaming")
STOP = 1


class Worker(Script):
    """ "hold PORT ..." waits at a gate before each token."""

    stage = stage

    def __init__(self) -> None:
        self.tokenizer = Tokenizer.from_file(str(ROOT / "models" / "tiny-opt" / "tokenizer.json"))

    def execute(self, batch: list[Any]) -> tuple[list[Any], Any]:
        began = time.monotonic()
        tokens = [self.next(row) for row in batch]
        computed = sum(len(row.ids) for row in batch)
        work = stage.stats.Work(len(batch), 1, len(batch), positions_computed=computed, began=began, seconds=1.0)
        return tokens, work

    def next(self, row: Any) -> Any:
        prompt = row.ids[: len(row.ids) - row.new]
        match self.tokenizer.decode(prompt).split():
            case ["hold", port, *_]:
                Gate.knock(int(port))
            case ["die", *_]:
                os._exit(3)
            case ["raise", *_]:
                raise RuntimeError("scripted trouble")
        token = prompt[row.new] if row.new < len(prompt) else STOP
        return stage.sequence.Token(token, token == STOP)
