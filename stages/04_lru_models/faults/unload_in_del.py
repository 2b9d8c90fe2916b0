"""The remote model is unloaded when Python happens to destroy the worker.

`__del__` runs when the last reference goes: a traceback, a cache or a cycle can hold one for minutes or for good, and
at the end of the interpreter it may not run at all.

A user sees: the Triton server runs out of memory, although few models seem to be resident.

Seen in the wild: llama-cpp-python freed models in `__del__` and got a `close` method, because nobody can tell when a
destructor runs (pull request 1513). Python's documentation of `object.__del__` says why.
"""

from contextlib import suppress

from ..parts import WORKERS, Parts
from ..triton_worker import TritonWorker

TEST = "tests/stage_04/test_triton_fake.py::test_a_freed_model_is_unloaded_whoever_still_holds_the_worker"
MESSAGE = "the Triton server still had the model after its eviction"


class UnloadsSomeTime(TritonWorker):
    def free(self) -> None:
        self.model = None

    def __del__(self) -> None:
        with suppress(Exception):
            super().free()


PARTS = Parts(workers={**WORKERS, "triton": UnloadsSomeTime})
