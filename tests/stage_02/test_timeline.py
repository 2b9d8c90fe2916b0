"""The engine in time: a fake clock, a scripted executor, and what the engine itself records of who began when."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.serving import Stage, eventually

stage = Stage("02_static_batching")


class Slots:
    """An executor whose passes last as long as their longest sequence, on a clock that nothing else moves."""

    def __init__(self, lengths: dict[str, float], during: Callable[[float], object] = lambda began: None) -> None:
        self.now = 0.0
        self.lengths = lengths
        self.during = during
        self.ready = threading.Event()
        self.ready.set()
        self.failure = None

    def start(self) -> None: ...

    def close(self) -> None: ...

    def execute(self, batch: list[Any]) -> Any:
        began = self.now
        self.during(began)
        seconds = max(self.lengths[sequence.prompt] for sequence in batch)
        self.now = began + seconds
        work = stage.stats.Work(len(batch), forward_passes=1, row_steps=len(batch), began=began, seconds=seconds)
        return [stage.sequence.Completion(sequence.prompt, 1) for sequence in batch], work


class Timeline:
    """The engine around such an executor, and its trace."""

    def __init__(self, executor: Slots) -> None:
        self.events: list[dict[str, Any]] = []
        trace = stage.trace.Tracer(self.events.append, clock=lambda: executor.now)
        scheduler = stage.scheduler.Scheduler(batch_size=4, max_queue=128)
        self.engine: Any = stage.engine.Engine(executor, scheduler, trace, clock=lambda: executor.now)

    def begun(self) -> list[tuple[float, list[str]]]:
        """When each pass began, and whose it was, by the order of arrival."""
        arrived = [event["args"]["request_id"] for event in self.events if event["name"] == "queued"]
        passes = [event for event in self.events if event["name"] == "scheduled"]
        names = dict(zip(arrived, "ABCDEF", strict=False))
        return [(one["ts"] / 1e6, [names[name] for name in one["args"]["request_ids"]]) for one in passes]


def test_six_requests_on_four_slots() -> None:
    """E and F start when the longest of A to D ends."""
    lengths = {"A": 3.0, "B": 8.0, "C": 2.0, "D": 5.0, "E": 4.0, "F": 2.0}
    timeline = Timeline(Slots(lengths))

    async def six() -> list[list[str]]:
        asking = asyncio.gather(*(timeline.engine.generate({"prompt": name}, 50) for name in lengths))
        await asyncio.sleep(0)  # all have come
        assert timeline.engine.snapshot()["queued"] == 6
        timeline.engine.start()
        return await asking

    assert asyncio.run(six()) == [[name] for name in lengths]
    timeline.engine.close()
    assert timeline.begun() == [(0.0, list("ABCD")), (8.0, list("EF"))]
    stats = timeline.engine.snapshot()
    assert (stats["passes"], stats["forward_seconds"], stats["busy_time"]) == (2, 12.0, 1.0)
    assert stats["queue_seconds"] == 2 * 8.0


def test_who_arrives_one_second_into_a_batch_waits_for_all_of_it() -> None:
    running, joined = threading.Event(), threading.Event()

    def one_second_in(began: float) -> None:
        if not began:
            executor.now = 1.0
            running.set()
            assert joined.wait(30)

    executor = Slots({"A": 6.4, "B": 0.1}, one_second_in)
    timeline = Timeline(executor)

    async def two() -> None:
        timeline.engine.start()
        first = asyncio.ensure_future(timeline.engine.generate({"prompt": "A"}, 50))
        assert await asyncio.to_thread(running.wait, 30)
        second = asyncio.ensure_future(timeline.engine.generate({"prompt": "B"}, 50))
        await asyncio.to_thread(eventually, lambda: timeline.engine.snapshot()["queued"] == 1, "the second caller")
        joined.set()
        await asyncio.gather(first, second)

    asyncio.run(two())
    timeline.engine.close()
    assert timeline.begun() == [(0.0, ["A"]), (6.4, ["B"])]
    assert timeline.engine.snapshot()["queue_seconds"] == pytest.approx(5.4)
