"""A request that needs more blocks than there are waits for them forever.

The scheduler lets it in, because the model could take it, and then waits until enough blocks are free. There will never
be enough. As nobody overtakes, everybody behind it waits too.

A user sees: silence. The server is healthy, its load is zero, and no request is ever answered again.

Seen in the wild: vLLM issue 35541 and nano-vllm issue 274.
"""

from dataclasses import replace

from ..parts import Parts
from ..request import Request
from ..scheduler import Scheduler

TEST = "tests/stage_07/test_core_scheduler.py::test_a_request_that_the_pool_can_never_hold_is_refused"
MESSAGE = "waits for blocks that there will never be"


class Hopes(Scheduler):
    def refusal(self, request: Request) -> str | None:
        return replace(self.limits, num_blocks=1 << 62).refusal(request.token_ids, request.sampling.max_tokens)


class LooksAtThePrompt(Hopes):
    def refusal(self, request: Request) -> str | None:
        if self.limits.blocks(request.num_tokens) > self.limits.num_blocks:
            return f"the prompt needs more than the {self.limits.num_blocks} blocks of the pool"
        return super().refusal(request)


PARTS = Parts(scheduler=f"{__name__}:Hopes")


class LookAtThePrompt:
    """Tempting: refuse a prompt that does not fit. The answer grows until it does not fit either."""

    PARTS = Parts(scheduler=f"{__name__}:LooksAtThePrompt")
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"look_at_the_prompt": LookAtThePrompt}
