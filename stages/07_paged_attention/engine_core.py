"""07.3 The engine core: a process of its own that loops schedule -> run -> update for as long as it lives.

Two sockets, both bound by the client, both connected to by the core, both carrying msgspec's MessagePack:

- `input_address`: the client PUSHes `Add` and `Abort`, the core PULLs. One address for each core, and a new one for a
  core that replaces another, so that nothing meant for the dead one reaches it.
- `output_address`: the core PUSHes, the client PULLs. One address for all cores; each message carries `core`.

What comes out, in this order: one `Ready` when the model is loaded; then one `Outputs` after every turn of the loop
that changed anything, even if it has no outputs in it, so that a client with requests outstanding that hears nothing
knows that the core hangs; last, when it must end, one `Dead`. A request gets `Output`s until one has a finish reason,
and none after that. An abort is not answered, and one for an unknown id is harmless. Keeping ids unique is the
client's job.

Start it with `multiprocessing`'s spawn and `daemon=False` (it may have a child of its own); end it with `kill()`. It
ends by itself when its parent does, however that happened.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .config import EngineConfig, Unusable
from .core_parts import CoreParts, resolve
from .core_sockets import Sockets
from .executor import Executor, StepFailed, load, settle_in
from .messages import Abort, Add, CoreStats, Dead, Output, Outputs, Ready
from .request import Request
from .scheduler import NeverFits, QueueFull, Scheduler, Step
from .step import Failed, Row, Sampled
from .trace import Event, Tracer


class EngineCore:
    """The loop's body, without sockets: `handle` takes in a message, `turn` runs a step."""

    def __init__(
        self, scheduler: Scheduler, executor: Executor, trace: Tracer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.trace = trace
        self.clock = clock
        self.work: defaultdict[str, float] = defaultdict(float)

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
        waiting = len(self.scheduler.waiting)
        self.trace.instant(
            "queued", request_id=message.request_id, tokens=len(message.prompt_token_ids), waiting=waiting
        )
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
        self.trace.instant(
            "updated", step=self.work["steps"], request_ids=list(sampled), sampled=sampled, finished=finished
        )
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
        return list(result.outcomes)

    def row(self, request: Request, count: int) -> Row:
        """What the worker needs of a request to compute its next `count` tokens."""
        since, until = request.num_computed_tokens, request.num_computed_tokens + count
        return Row(
            request.request_id,
            request.token_ids[since:until],
            since,
            request.block_ids,
            until == request.num_tokens,
            request.num_output_tokens,
            request.sampling,
        )

    def tell(self, step: Step) -> None:
        """Count a step, and tell the trace who is in it and why."""
        self.work["steps"] += 1
        now = self.clock()
        for request in step.admitted:
            if not request.num_preemptions:
                self.work["queue_seconds"] += max(0.0, now - request.arrived)
        if self.trace.sink:
            number, scheduler = self.work["steps"], self.scheduler
            self.trace.instant(
                "scheduled",
                step=number,
                request_ids=[request.request_id for request, _ in step.scheduled],
                tokens=[count for _, count in step.scheduled],
                budget=scheduler.max_num_batched_tokens,
                admitted=[request.request_id for request in step.admitted],
                preempted=[request.request_id for request in step.preempted],
                waiting=len(scheduler.waiting),
            )
            for request, _ in step.scheduled:
                if popped := step.popped.get(request.request_id):
                    tables = {"popped": popped, "block_ids": list(request.block_ids)}
                    self.trace.instant(
                        "blocks", step=number, request_id=request.request_id, cached=request.num_cached_tokens, **tables
                    )

    def stats(self) -> CoreStats:
        """Gauges and totals of this moment."""
        scheduler, manager = self.scheduler, self.scheduler.manager
        return CoreStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            blocks_free=manager.pool.free,
            blocks_cached=manager.pool.cached,
            blocks_used=manager.pool.used,
            prefix_queries=manager.prefix_queries,
            prefix_hits=manager.prefix_hits,
            preemptions=scheduler.preemptions,
            work={**self.work},
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to a phase's total."""
        began = self.clock()
        yield
        self.work[f"{name}_seconds"] += self.clock() - began


def run_engine_core(
    config: EngineConfig, core: int, input_address: str, output_address: str, parts: CoreParts = CoreParts()
) -> None:
    """The main function of the core's process. `parts` is `Parts.for_core()` in the parent."""
    settle_in()
    sockets = Sockets(input_address, output_address)
    events: list[Event] = []
    trace = Tracer(events.append if config.trace else None, process=f"engine core {core}")
    executor = None
    try:
        executor = load(config, parts, trace)
        engine, limits = EngineCore.build(config, parts, executor, trace), executor.limits
        sizes = limits.block_size, limits.num_blocks, limits.max_model_len
        sockets.send(Ready(core, *sizes, executor.stop_token_ids, limits.vocab_size))
        busy = False
        while True:
            messages = sockets.messages(wait=not busy)
            outputs = [output for message in messages for output in engine.handle(message)]
            busy, more = engine.turn()
            if busy or messages:
                sockets.send(Outputs(core, outputs + more, engine.stats(), events.copy()))
                events.clear()
    except Exception as exc:
        unusable = isinstance(exc, Unusable)
        sockets.send(Dead(core, str(exc) if unusable else repr(exc), unusable))
    finally:
        if executor:
            executor.close()
        sockets.close()
