"""The counters alone, under a fake clock; and the whole of `/stats` against the model's own count."""

import asyncio
from typing import Any

import pytest

from tests.forwards import Forwards, InProcess, counts
from tests.serving import Stage

stage = Stage("01_single_request")
Work = stage.stats.Work


def test_a_server_that_has_done_nothing_says_so() -> None:
    stats = stage.stats.Stats(now=100.0)
    snapshot = stats.snapshot(100.0)
    assert snapshot.pop("requests") == {"completed": 0, "refused": 0, "failed": 0, "hung_up": 0}
    assert set(snapshot.values()) == {0}
    assert stats.seconds_per_pass() == 1.0


def test_passes_add_up_under_a_fake_clock() -> None:
    stats = stage.stats.Stats(now=100.0)
    stats.record(Work(4, 10, 40, 120, 20, 6, began=103.0, seconds=2.0), queued_since=[101.0, 102.5, 104.0])
    stats.record(Work(2, 5, 10, 30, 0, 1, began=106.0, seconds=1.0), queued_since=[])
    stats.count("completed")
    snapshot = stats.snapshot(110.0, running=3)
    assert snapshot["requests"]["completed"] == 1
    assert snapshot["running"] == 3
    assert (snapshot["passes"], snapshot["rows_per_pass"]) == (2, 3.0)
    assert (snapshot["forward_passes"], snapshot["row_steps"], snapshot["rows_per_forward"]) == (15, 50, 50 / 15)
    assert (snapshot["positions_computed"], snapshot["positions_padding"], snapshot["positions_attended"]) == (
        150,
        20,
        130,
    )
    assert snapshot["idle_row_steps"] == 7
    assert snapshot["queue_seconds"] == 2.0 + 0.5  # who arrived after the pass had begun did not wait
    assert snapshot["forward_seconds"] == 3.0
    assert snapshot["busy_time"] == 3.0 / 10.0
    assert snapshot["busy_rows"] == 50 / 15 / 16
    assert stats.snapshot(130.0)["busy_time"] == 3.0 / 30.0
    assert stats.seconds_per_pass() == 1.5


def test_a_pass_without_rows_never_ran() -> None:
    stats = stage.stats.Stats(now=0.0)
    stats.record(Work(began=5.0), queued_since=[1.0])
    assert stats.snapshot(10.0)["passes"] == stats.snapshot(10.0)["queue_seconds"] == 0
    assert stats.seconds_per_pass() == 1.0


def test_the_length_of_a_pass_is_that_of_the_last_few() -> None:
    stats = stage.stats.Stats(now=0.0)
    for seconds in [100.0] * 10 + [2.0] * 16:
        stats.record(Work(1, seconds=seconds), queued_since=[])
    assert stats.seconds_per_pass() == 2.0


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_stats_agree_with_the_model(tiny_opt: tuple[Any, Any], ignore_eos: bool) -> None:
    executor = InProcess(stage.worker.Worker(*tiny_opt))

    async def some(engine: Any) -> None:
        engine.start()
        await asyncio.gather(*(engine.generate(f"Count from 3 to {last}:", 20, ignore_eos) for last in (5, 9)))
        with pytest.raises(stage.errors.Refused):
            await engine.generate("word " * 2000, 20)

    with Forwards(tiny_opt[0]) as seen:
        engine = stage.engine.Engine(executor, 128, stage.trace.Tracer())
        asyncio.run(some(engine))
    assert sum(seen.rows) == (40 if ignore_eos else 4 + 8)
    assert counts(engine.snapshot()) == seen.stats(passes=2, rows_per_pass=1.0, completed=2, refused=1)
    engine.close()
