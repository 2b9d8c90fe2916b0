"""Stage 01's scripted worker, three that cannot start, and one that stops in the middle of a reply."""

import gc
import os
import struct
import threading
from multiprocessing.connection import Connection
from typing import Any

from tests.scripted import Script
from tests.serving import Stage


class Worker(Script):
    stage = Stage("01_single_request")


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
        raise cls.stage.child.Unusable("that is no model")


class HalfReplies(Worker):
    def execute(self, batch: list[Any]) -> Any:
        [pipe] = [thing for thing in gc.get_objects() if isinstance(thing, Connection)]
        os.write(pipe.fileno(), struct.pack("!i", 100) + b"of a hundred bytes only these")
        threading.Event().wait()
