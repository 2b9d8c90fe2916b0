"""07.3 What the engine core does over and over: take in messages, and turn by turn schedule -> run -> update.

Knows no sockets, no processes and no tensors. A turn decides a step, has it run wherever the worker is, takes in what
came of it, and leaves in the trace who was in it and why.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .config import EngineConfig
from .core_parts import CoreParts, resolve
from .executor import Executor, StepFailed
from .messages import Abort, Add, CoreStats, Output
from .request import Request
from .scheduler import NeverFits, QueueFull, Scheduler
from .step import Failed, Row, Sampled, Step
from .trace import Tracer


class EngineCore:
    """The loop's body, without sockets: `handle` takes in a message, `turn` runs a step."""

    def __init__(
        self, scheduler: Scheduler, executor: Executor, trace: Tracer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.trace = trace
        self.clock = clock
        self.work: defaultdict[str, float] = defaultdict(int)

    @classmethod
    def build(cls, config: EngineConfig, parts: CoreParts, executor: Executor, trace: Tracer) -> "EngineCore":
        """Wire the parts around an executor that has its model."""
        limits = executor.limits
        pool = resolve(parts.block_pool)(limits.num_blocks)
        manager = resolve(parts.kv_cache_manager)(pool, limits.block_size, config.enable_prefix_caching)
        budgets = config.max_num_batched_tokens, config.max_num_seqs, config.max_queue
        scheduler = resolve(parts.scheduler)(manager, limits, *budgets, frozenset(executor.stop_token_ids))
        return cls(scheduler, executor, trace)

    def handle(self, message: Add | Abort) -> list[Output]:
        """Queue a request or forget some; what there is to answer at once: refusals."""
        if isinstance(message, Abort):
            for request_id in message.request_ids:
                self.scheduler.abort(request_id)
            self.trace.instant("aborted", request_ids=message.request_ids)
            return []
        try:
            self.scheduler.add(Request.of(message))
        except (NeverFits, QueueFull) as exc:
            kind = "full" if isinstance(exc, QueueFull) else "invalid"
            return [Output(message.request_id, [], "error", str(exc), kind)]
        tokens, waiting = len(message.prompt_token_ids), len(self.scheduler.waiting)
        self.trace.instant("queued", request_id=message.request_id, tokens=tokens, waiting=waiting)
        return []

    def turn(self) -> tuple[bool, list[Output]]:
        """One step: schedule, run, update. Whether there was anything to run, and what came of it."""
        with self.phase("schedule"):
            step = self.scheduler.schedule()
        if not step.scheduled:
            return False, []
        self.tell(step)
        with self.phase("run"):
            outcomes = self.run([self.row(request, count) for request, count in step.scheduled])
        with self.phase("update"):
            outputs = self.scheduler.update(step, outcomes)
        sampled = {output.request_id: output.token_ids for output in outputs}
        finished = {output.request_id: output.finish_reason for output in outputs if output.finish_reason}
        told = {"sampled": sampled, "finished": finished}
        self.trace.instant("updated", step=int(self.work["steps"]), request_ids=list(sampled), **told)
        return True, outputs

    def run(self, rows: list[Row]) -> list[Sampled | Failed | None]:
        """One pass for all rows. If it raises, each is tried alone: computing a token again changes nothing."""
        try:
            result = self.executor.execute(rows)
        except StepFailed as exc:
            return [Failed(str(exc))] if len(rows) == 1 else [self.run([row])[0] for row in rows]
        tokens = sum(len(row.token_ids) for row in rows)
        self.work["forward_passes"] += 1
        self.work["rows"] += len(rows)
        self.work["positions_computed"] += result.positions_computed
        self.work["positions_padding"] += result.positions_computed - tokens
        for part, seconds in result.seconds.items():
            self.work[f"{part}_seconds"] += seconds
        return list(result.outcomes)

    def row(self, request: Request, count: int) -> Row:
        """What the worker needs of a request to compute its next `count` tokens."""
        since, place = request.num_computed_tokens, request.num_output_tokens
        tokens, samples = request.token_ids[since : since + count], since + count == request.num_tokens
        return Row(request.request_id, tokens, since, request.block_ids, samples, place, request.sampling)

    def tell(self, step: Step) -> None:
        """Count a step, and tell the trace who is in it."""
        self.work["steps"] += 1
        now, number = self.clock(), int(self.work["steps"])
        new = [request for request in step.admitted if not request.num_preemptions]
        self.work["queue_seconds"] += sum(max(0.0, now - request.arrived) for request in new)
        if self.trace.sink:
            admitted, preempted = ([one.request_id for one in some] for some in (step.admitted, step.preempted))
            who, tokens = zip(*((request.request_id, count) for request, count in step.scheduled), strict=True)
            changes = {"admitted": admitted, "preempted": preempted, "waiting": len(self.scheduler.waiting)}
            budget = self.scheduler.max_num_batched_tokens
            self.trace.instant("scheduled", step=number, request_ids=who, tokens=tokens, budget=budget, **changes)
            for request, _ in step.scheduled:
                if popped := step.popped.get(request.request_id):
                    seen = {"block_ids": [*request.block_ids], "cached": request.num_cached_tokens}
                    self.trace.instant("blocks", step=number, request_id=request.request_id, popped=popped, **seen)

    def stats(self) -> CoreStats:
        """Gauges and totals of this moment."""
        scheduler, manager = self.scheduler, self.scheduler.manager
        load, pool = (len(scheduler.running), len(scheduler.waiting)), manager.pool
        prefix = manager.prefix_queries, manager.prefix_hits
        return CoreStats(*load, pool.free, pool.cached, pool.used, *prefix, scheduler.preemptions, {**self.work})

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to a phase's total."""
        began = self.clock()
        yield
        self.work[f"{name}_seconds"] += self.clock() - began
