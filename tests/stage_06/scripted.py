"""Stage 06's scripted workers: some predict, and some stream their prompt back, a character a step."""

from functools import partial
from typing import Any

from tests import scripted_models
from tests.scripted_models import SECONDS, Scripted, reached
from tests.serving import Stage

__all__ = ["END", "SECONDS", "Script", "make_residency", "metadata", "reached", "shipped"]

stage = Stage("06_pinned_streams")
metadata = partial(scripted_models.metadata, stage)
shipped = partial(scripted_models.shipped, stage)
END = 0
"""the stop token; all other tokens are characters"""


class Script(scripted_models.Script):
    """A step happens as "step s"; a prompt is prepared as "prepare s"; the prompt "raise" fails its step."""

    stage = stage

    def __init__(self) -> None:
        super().__init__()
        bases = (ScriptedStreams, Scripted, stage.streaming_worker.StreamingWorker)
        self.streaming: Any = type("StreamingWorker", bases, {"script": self})


class ScriptedStreams:
    """What a streaming worker does beside the rest; `Scripted` comes behind it."""

    script: Script
    metadata: Any
    model: Any
    context = 2000
    streams: Any = ()

    def prepare(self, item: Any) -> list[int]:
        self.script.happens("prepare", self.metadata.name)
        return [ord(character) for character in item]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(token) for token in ids if token != END)

    def execute(self, batch: list[Any]) -> tuple[list[Any], Any]:
        self.streams = list(batch)
        if batch:
            if self.model is None:
                self.script.asked_when_freed.append(self.metadata.name)
            self.script.happens("step", self.metadata.name)
        outcomes = [self.answer(sequence) for sequence in batch]
        return outcomes, stage.stats.Work(rows=len(batch), forward_passes=1, row_steps=len(batch), seconds=1.0)

    def answer(self, sequence: Any) -> Any:
        text = self.decode(sequence.prompt_ids)
        if text == "raise":
            return stage.errors.WorkerFailed("scripted trouble")
        ids = [*sequence.prompt_ids, END]
        token = ids[min(len(sequence.output_ids), len(ids) - 1)]
        return stage.sequence.Token(token, token == END)

    def free(self) -> None:
        self.streams = []
        super().free()  # pyright: ignore[reportAttributeAccessIssue]

    def kv_bytes(self) -> tuple[int, int]:
        return 100, 10 * len(self.streams)


def make_residency(parts: Any, script: Script, slots: int = 2) -> Any:
    trace, stats = stage.trace.Tracer(), stage.stats.Stats(0.0)

    def queue_for(worker: Any, on_thread: Any) -> Any:
        if isinstance(worker, stage.streaming_worker.StreamingWorker):
            return parts.streams(worker, parts.scheduler(worker.slots, 128), on_thread, stats, trace)
        return parts.batching(worker, parts.batcher(4, 0.0, 128), on_thread, stats, trace)

    workers = {**parts.workers, "scripted": script.worker, "scripted-stream": script.streaming}
    return parts.residency(parts.policy(slots), workers, "cpu", queue_for, trace)
