"""The manager under any interleaving: hypothesis decides what happens next, and the event loop moves when told to.

Whatever runs on a worker's thread elsewhere is a future here: a load ends when a rule says so.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.serving import Stage
from tests.stage_06.scripted import metadata

stage = Stage("06_pinned_streams")
State = stage.lru.State
SLOTS = 2
NAMES = "abcd"


class Worker:
    """Neither loads nor frees before it is told to."""

    def __init__(self, described: Any, _: str) -> None:
        self.metadata = described
        self.thread = self

    def shutdown(self, wait: bool) -> None:
        """There is no thread."""

    def check(self) -> None: ...
    def load(self) -> None: ...
    def free(self) -> None: ...

    def failed(self, why: str) -> Exception:
        return stage.errors.LoadFailed(why)


class Queue:
    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def drain(self) -> None: ...
    def close(self) -> None: ...


class Manual(stage.residency.Residency):
    """The manager, but for the threads."""

    def __init__(self) -> None:
        workers: Any = {"manual": Worker}
        super().__init__(stage.lru.Lru(SLOTS), workers, "cpu", lambda worker, _: Queue(worker), stage.trace.Tracer())
        self.pending: dict[str, list[tuple[Worker, asyncio.Future[None]]]] = {"load": [], "free": []}
        self.in_memory: set[Worker] = set()
        self.most = 0

    async def on_thread(self, worker: Any, work: Any, *args: Any) -> Any:
        if work.__name__ == "check":
            return
        if work.__name__ == "load":
            self.in_memory.add(worker)
            self.most = max(self.most, len(self.in_memory))
        done = asyncio.get_running_loop().create_future()
        self.pending[work.__name__].append((worker, done))
        try:
            await done
        finally:
            if work.__name__ == "free":
                self.in_memory.discard(worker)


class Manager(RuleBasedStateMachine):
    """Streams and predictions are alike here: they are admitted, wait for the load, hold their pin, and end."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.calls: list[tuple[str, asyncio.Task[None], asyncio.Event]] = []
        self.holding: dict[asyncio.Task[None], Any] = {}
        self.manager: Any = None
        self.run(self.build())

    async def build(self) -> None:
        self.manager = Manual()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something on the loop, and let everything happen that follows from it."""

        async def settle() -> Any:
            result = await work
            for _ in range(40):
                await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(settle())

    async def call(self, name: str, over: asyncio.Event) -> None:
        """One that is refused, or whose load fails, has its answer."""
        with suppress(stage.errors.ServingError):
            await self.hold(name, over)

    async def hold(self, name: str, over: asyncio.Event) -> None:
        pin = await self.manager.admit(metadata(name, "manual"), "a request")
        task = asyncio.current_task()
        assert task
        self.holding[task] = pin
        try:
            await self.manager.loaded(pin)
            assert pin.entry.state is State.READY
            await over.wait()
            assert pin.entry.state is State.READY, "a pinned model has gone"
        finally:
            del self.holding[task]
            pin.release()
            pin.release()  # harmless

    @rule(name=st.sampled_from(NAMES))
    def admit(self, name: str) -> None:
        idle = [e for e in self.entries() if e.state is State.READY and not e.pins]
        staying = [e for e in self.entries() if e.state is not State.DRAINING]
        known = self.manager.policy.entries.get(name)
        refused = self.manager.counts["refused_busy"]

        async def begin() -> None:
            over = asyncio.Event()
            self.calls.append((name, asyncio.ensure_future(self.call(name, over)), over))

        self.run(begin())
        if not known:
            busy = len(staying) >= SLOTS and not idle
            assert self.manager.counts["refused_busy"] - refused == busy, "refused, or not, without reason"
            if not busy and len(staying) >= SLOTS:
                assert idle[0].state in (State.DRAINING, State.GONE), "another one was evicted"

    @precondition(lambda self: self.manager.pending["load"])
    @rule(place=st.integers(0, 9), works=st.booleans())
    def load_ends(self, place: int, works: bool) -> None:
        self.finish("load", place, None if works else stage.errors.WorkerFailed("no room"))

    @precondition(lambda self: self.manager.pending["free"])
    @rule(place=st.integers(0, 9))
    def free_ends(self, place: int) -> None:
        self.finish("free", place, None)

    def finish(self, what: str, place: int, error: Exception | None) -> None:
        pending = self.manager.pending[what]
        _, done = pending.pop(place % len(pending))

        async def finish() -> None:
            if error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self.run(finish())

    @precondition(lambda self: self.calls)
    @rule(place=st.integers(0, 99), how=st.sampled_from(["ends", "hangs up"]))
    def leaves(self, place: int, how: str) -> None:
        _, task, over = self.calls.pop(place % len(self.calls))

        async def leave() -> None:
            if how == "ends":
                over.set()  # if it still waits, it ends as soon as it has begun
            else:
                task.cancel()

        self.run(leave())
        assert not task.done() or task.cancelled() or not task.exception()

    @rule()
    def tick(self) -> None:
        async def nothing() -> None: ...

        self.run(nothing())

    def entries(self) -> list[Any]:
        return list(self.manager.policy.entries.values())

    @invariant()
    def never_more_in_memory_than_slots(self) -> None:
        assert self.manager.most <= SLOTS
        assert sum(entry.in_memory for entry in self.entries()) <= SLOTS
        assert sum(entry.state is not State.DRAINING for entry in self.entries()) <= SLOTS

    @invariant()
    def pins_are_those_who_hold_one(self) -> None:
        assert sum(entry.pins for entry in self.entries()) == len(self.holding)
        for pin in self.holding.values():
            assert pin.held and pin.entry.state in (State.LOADING, State.READY), "a pinned model was evicted"

    @invariant()
    def nobody_is_lost(self) -> None:
        """Who has no answer holds a pin on a model that is there or loading, or waits for one that is being freed."""
        for name, task, _ in self.calls:
            assert not task.done() or not task.exception()
            if not task.done() and task not in self.holding:
                assert self.manager.policy.entries[name].state is State.DRAINING
        loading = any(entry.state is State.LOADING for entry in self.entries())
        assert not loading or self.manager.pending["load"] or self.manager.pending["free"]

    def teardown(self) -> None:
        async def leave() -> None:
            for _, task, _ in self.calls:
                task.cancel()

        self.run(leave())
        while self.manager.pending["load"] or self.manager.pending["free"]:
            self.finish("load" if self.manager.pending["load"] else "free", 0, None)
        assert not self.holding
        assert all(entry.pins == 0 and entry.state is State.READY for entry in self.entries())
        self.loop.close()


TestManager = Manager.TestCase
TestManager.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
