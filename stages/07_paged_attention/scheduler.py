"""07.4 The scheduler: who takes part in the next step, and with how many tokens. Pure: no thread, no clock, no model.

The decision, in this order:

1. Everyone who runs goes on, oldest first: one token to decode, or the next chunk of a prompt.
2. If one of them needs a block and the pool is empty, the newest that runs is preempted: its blocks go back, and it
   waits at the *front* of the queue, to be computed again.
3. If nobody was preempted, who waits is admitted, first come, first served, until a budget is spent (tokens in the
   step, requests that run) or the first does not fit. Nobody overtakes.
4. A newcomer fits if blocks for its whole prompt are there, and one more for each that runs then. So nobody is
   preempted within a block's length of steps of an admission. If nothing runs, that watermark is waived.

Each budget is respected at all times, and the cost of a step grows with what runs, not with what waits.
"""

from collections import OrderedDict

from .kv_cache_manager import KVCacheManager
from .limits import Limits, NeverFits, QueueFull
from .messages import Output
from .request import Request, Status
from .step import Failed, Sampled, Step


class Scheduler:
    """Two verbs: `schedule` decides a step, `update` takes in what came of it."""

    def __init__(
        self,
        manager: KVCacheManager,
        limits: Limits,
        max_num_batched_tokens: int = 2048,
        max_num_seqs: int = 256,
        max_queue: int = 128,
        stop_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.manager = manager
        self.limits = limits
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_num_seqs = max_num_seqs
        self.max_queue = max_queue
        self.stop_token_ids = stop_token_ids
        self.waiting: OrderedDict[str, Request] = OrderedDict()
        self.running: list[Request] = []  # oldest first
        self.requests: dict[str, Request] = {}  # all that wait or run
        self.preemptions = 0

    def add(self, request: Request) -> None:
        """Queue a request. Raises `NeverFits` or `QueueFull`; it is not queued then."""
        if request.request_id in self.requests:
            raise NeverFits(f"a request with id {request.request_id} is in progress")
        if reason := self.refusal(request):
            raise NeverFits(reason)
        if len(self.waiting) >= self.max_queue:
            raise QueueFull(f"the queue is full ({len(self.waiting)} of {self.max_queue} waiting)")
        self.requests[request.request_id] = self.waiting[request.request_id] = request

    def abort(self, request_id: str) -> None:
        """Forget a request, waiting or running. Harmless if there is none with this id."""
        if request := self.requests.get(request_id):
            self.finish(request)

    def schedule(self) -> Step:
        """Decide the next step; empty if there is nothing to do."""
        step, budget = Step(), self.max_num_batched_tokens
        for request in list(self.running):
            if request.status is Status.RUNNING and budget:
                budget -= self.go_on(request, budget, step)
        while self.waiting and budget and not step.preempted and len(self.running) < self.max_num_seqs:
            request = next(iter(self.waiting.values()))
            if not self.manager.admit(request, self.headroom()):
                break
            del self.waiting[request.request_id]
            request.status = Status.RUNNING
            self.running.append(request)
            step.admitted.append(request)
            step.popped[request.request_id] = request.block_ids[request.num_computed_tokens // self.limits.block_size :]
            budget -= self.take(request, budget, step)
        return step

    def update(self, step: Step, outcomes: list[Sampled | Failed | None]) -> list[Output]:
        """Take in what came of each scheduled request: a token, a failure, or None while its prompt is in the works."""
        outputs = []
        for (request, count), sampled in zip(step.scheduled, outcomes, strict=True):
            if request.status is not Status.RUNNING:
                continue
            if isinstance(sampled, Failed):
                self.finish(request)
                outputs.append(Output(request.request_id, [], "error", error=sampled.reason))
                continue
            since, first = request.num_computed_tokens, not request.num_output_tokens
            request.num_computed_tokens += count
            self.manager.remember(request, since)
            if sampled:
                request.token_ids.append(sampled.token_id)
                reason, cached = self.finish_reason(request), request.num_cached_tokens if first else 0
                logprobs = [sampled.logprobs] if sampled.logprobs else None
                told = {"logprobs": logprobs, "cached_tokens": cached}
                outputs.append(Output(request.request_id, [sampled.token_id], reason, **told))
                if reason:
                    self.finish(request)
        return outputs

    def go_on(self, request: Request, budget: int, step: Step) -> int:
        """Schedule one that runs, at the cost of newer ones if need be; how many tokens that took."""
        had = len(request.block_ids)
        while not self.manager.grow(request, request.num_tokens):
            newest = self.running[-1]
            self.preempt(newest)
            step.preempted.append(newest)
            if newest is request:
                return 0
        if request.block_ids[had:]:
            step.popped[request.request_id] = request.block_ids[had:]
        return self.take(request, budget, step)

    def take(self, request: Request, budget: int, step: Step) -> int:
        """Put as many of a request's tokens into the step as the budget allows."""
        count = min(budget, request.num_tokens - request.num_computed_tokens)
        step.scheduled.append((request, count))
        return count

    def refusal(self, request: Request) -> str | None:
        """Why a request could not be served even if it ran alone; None if it could."""
        return self.limits.refusal(request.token_ids, request.sampling.max_tokens)

    def headroom(self) -> int:
        """Blocks that must be left when one more is admitted: one for each that runs then, none if it runs alone."""
        return len(self.running) + 1 if self.running else 0

    def preempt(self, request: Request) -> None:
        """Back to the front of the queue, without blocks."""
        self.running.remove(request)
        self.manager.free(request)
        request.status = Status.WAITING
        request.num_preemptions += 1
        self.preemptions += 1
        self.waiting[request.request_id] = request
        self.waiting.move_to_end(request.request_id, last=False)

    def finish(self, request: Request) -> None:
        """Forget a request; its blocks may serve another in the very next step."""
        del self.requests[request.request_id]
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.manager.free(request)
        else:
            del self.waiting[request.request_id]
        request.status = Status.FINISHED

    def finish_reason(self, request: Request) -> str | None:
        """ "stop" or "length" if the newest token is a request's last one."""
        if request.token_ids[-1] in self.stop_token_ids and not request.sampling.ignore_eos:
            return "stop"
        return "length" if request.num_output_tokens >= request.sampling.max_tokens else None
