"""Who hangs up takes their blocks along.

An abort takes the request out of the batch and forgets to give its blocks back. Nobody has them, nobody can get them.

A user sees: a server that gets slower by the hour, preempts more and more, and at last admits nobody, until it is
restarted. Its `kv_cache_usage_perc` never comes down to zero.

Seen in the wild: vLLM issues 46283 and 9428.
"""

from ..parts import Parts
from ..request import Status
from ..scheduler import Scheduler

TEST = "tests/stage_07/test_core_scheduler.py::test_an_abort_gives_all_blocks_back"
MESSAGE = "blocks are in use, and nobody has them"


class Leaks(Scheduler):
    def abort(self, request_id: str) -> None:
        if request := self.requests.pop(request_id, None):
            self.waiting.pop(request_id, None)
            self.running = [other for other in self.running if other is not request]
            request.status = Status.FINISHED


class FreesTheLastBlock(Leaks):
    def abort(self, request_id: str) -> None:
        request = self.requests.get(request_id)
        super().abort(request_id)
        if request and request.block_ids:
            self.manager.pool.release(request.block_ids.pop())


PARTS = Parts(scheduler=f"{__name__}:Leaks")


class FreeTheLastBlock:
    """Tempting: give back the block that is being filled, and trust that the full ones are in the prefix cache."""

    PARTS = Parts(scheduler=f"{__name__}:FreesTheLastBlock")
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"free_the_last_block": FreeTheLastBlock}
