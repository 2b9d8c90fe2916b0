"""Stage 01 without its pipe: the same routes and engine, but the model runs on a thread of the web process.

One part is swapped, the executor, so whatever differs from `model_in_child` is the pipe's doing.
"""

import os
import threading
from importlib import import_module
from typing import Any

stage = "stages.01_single_request"  # no identifier, so no import statement


class InProcessExecutor:
    """Stands in for stage 01's executor: runs one batch at a time, where it is called."""

    failure = None

    def __init__(self, worker: str, model: str, device: str, _deadline: float, trace: Any) -> None:
        module, name = worker.split(":")
        self._worker = getattr(import_module(module), name).load(model, device, trace)
        self._one_at_a_time = threading.Lock()
        self.ready = threading.Event()
        self.ready.set()

    def start(self) -> None:
        """The model is there already."""

    def close(self) -> None:
        """There is no process to end."""

    def execute(self, batch: list[Any]) -> Any:
        """Run one batch on the calling thread."""
        with self._one_at_a_time:
            return self._worker.execute(batch)


parts: Any = import_module(f"{stage}.parts").Parts(executor=InProcessExecutor)
settings: Any = import_module(f"{stage}.settings").Settings(os.environ["MODEL"])
app = import_module(f"{stage}.server").create_app(settings, parts)
