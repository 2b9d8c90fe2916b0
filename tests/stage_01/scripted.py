"""Stage 01's scripted worker, and three that cannot start."""

import os
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
