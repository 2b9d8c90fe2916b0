"""Two requests for a model that is not there load it twice.

A model that is still loading is not in memory, so whoever looks meanwhile finds nothing and loads it, too.

A user sees: after a deployment, when many ask for the same model at once, memory runs out.

Seen in the wild: the cache stampede, also called thundering herd; Go's `singleflight` package is the classic remedy.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ..lru import Decision, Lru, State
from ..parts import Parts
from ..registry import Metadata
from ..residency import Residency
from ..worker import Worker

TEST = "tests/stage_04/test_lru.py::test_a_model_that_is_loading_is_not_loaded_again"
MESSAGE = "the same model was loaded twice"

T = TypeVar("T")


class LoadsAgain(Lru):
    def request(self, model_id: str) -> Decision:
        entry = self.entries.get(model_id)
        if entry and entry.state is State.LOADING:
            del self.entries[model_id]
        return super().request(model_id)


class OneAtATime(Residency):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lock = asyncio.Lock()

    async def call(self, metadata: Metadata, work: Callable[[Worker], T], request_id: str) -> T:
        async with self.lock:
            return await super().call(metadata, work, request_id)


PARTS = Parts(policy=LoadsAgain)


class OneBigLock:
    """Tempting: a lock around everything. Nothing is loaded twice, and every hit waits for somebody else's load."""

    PARTS = Parts(policy=LoadsAgain, residency=OneAtATime)
    TEST = "tests/stage_04/test_residency.py::test_a_load_stalls_nobody_elses_hit"
    MESSAGE = "a hit waited for another model's load"


NAIVE_FIXES = {"one_big_lock": OneBigLock}
