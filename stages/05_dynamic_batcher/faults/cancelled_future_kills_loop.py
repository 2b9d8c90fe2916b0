"""A caller that hung up kills the queue's loop.

Its future is cancelled, and setting the result of a cancelled future raises. The error ends the task that empties the
queue, and nobody looks at that task.

A user sees: one client closes its connection, and from then on that model answers nobody.

Seen in the wild: Ray issue 41057, TensorRT-LLM issue 15424.
"""

import asyncio
from contextlib import suppress

from ..batching import Batching, Item
from ..parts import Parts
from ..worker import Prediction

TEST = "tests/stage_05/test_batching.py::test_who_hangs_up_during_a_pass_disturbs_nobody"
MESSAGE = "nobody was answered after one caller hung up"


class SetsEveryResult(Batching):
    def deal(self, batch: list[Item], results: list[Prediction]) -> None:
        for item, result in zip(batch, results, strict=True):
            item.answer.set_result(result)


class IgnoresTheError(SetsEveryResult):
    def deal(self, batch: list[Item], results: list[Prediction]) -> None:
        with suppress(asyncio.InvalidStateError):
            super().deal(batch, results)


PARTS = Parts(batching=SetsEveryResult)


class CatchAroundTheBatch:
    """Tempting: catch the error. The loop lives, but whoever stood behind the one that hung up is never answered."""

    PARTS = Parts(batching=IgnoresTheError)
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"catch_around_the_batch": CatchAroundTheBatch}
