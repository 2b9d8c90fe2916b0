"""The queue of one worker: who shares a pass, and who is told what. Gates instead of sleeps."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.serving import Stage
from tests.stage_05.scripted import FOREVER, Script, metadata, reached

stage = Stage("05_dynamic_batcher")


class Worker:
    """Answers each row with its own text, and remembers the batches."""

    metadata: Any = metadata("a")

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def predict(self, rows: list[Any]) -> list[Any]:
        self.batches.append(rows)
        if "poison" in rows:
            raise RuntimeError("scripted trouble")
        return [stage.worker.Prediction(row, 1.0) for row in rows if row != "missing"]


async def on_thread(_: Any, work: Any, *args: Any) -> Any:
    try:
        return await asyncio.to_thread(work, *args)
    except RuntimeError as exc:
        raise stage.errors.WorkerFailed(str(exc)) from None


def batching(parts: Any, worker: Any, max_batch: int = 4, max_delay_ms: float = FOREVER) -> Any:
    stats = stage.stats.Stats(0.0)
    batcher = parts.batcher(max_batch, max_delay_ms, 128)
    return parts.batching(worker, batcher, on_thread, stats, stage.trace.Tracer())


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def outcomes(answers: list[Any], seconds: float, complaint: str) -> list[Any]:
    """The label, or the error, with which each future ends."""
    _, pending = await asyncio.wait(answers, timeout=seconds)
    if pending:
        pytest.fail(complaint)
    return [None if a.cancelled() else a.exception() or a.result().label for a in answers]


def test_those_who_come_together_share_a_pass_and_get_their_own(parts: Any) -> None:
    async def main() -> None:
        worker = Worker()
        queue = batching(parts, worker)
        answers = [queue.submit(name, "r") for name in "abcd"]
        assert await outcomes(answers, 30, "no answer") == list("abcd")
        assert worker.batches == [list("abcd")]
        queue.close()

    run(main())


def test_a_lone_input_is_answered_when_its_delay_is_over() -> None:
    async def main() -> None:
        worker = Worker()
        queue = batching(stage.parts.Parts(), worker, max_delay_ms=1.0)
        assert await outcomes([queue.submit("a", "r")], 30, "no answer") == ["a"]
        queue.close()

    run(main())


def test_a_poisoned_input_fails_alone(parts: Any, patience: float) -> None:
    async def main() -> None:
        worker = Worker()
        queue = batching(parts, worker, max_batch=3)
        answers = [queue.submit(name, "r") for name in ("a", "poison", "b")]
        found = await outcomes(answers, patience, "no answer")
        queue.close()
        assert isinstance(found[1], stage.errors.WorkerFailed)
        assert [found[0], found[2]] == ["a", "b"], "one caller's input failed another's request"
        assert worker.batches[1:] == [["a"], ["poison"], ["b"]]

    run(main())


def test_who_hangs_up_before_the_flush_is_in_no_batch() -> None:
    async def main() -> None:
        worker = Worker()
        queue = batching(stage.parts.Parts(), worker, max_batch=3)
        gone = queue.submit("gone", "r")
        gone.cancel()
        answers = [queue.submit(name, "r") for name in "abc"]
        assert await outcomes(answers, 30, "no answer") == list("abc")
        assert worker.batches == [list("abc")]
        queue.close()

    run(main())


def test_who_hangs_up_during_a_pass_disturbs_nobody(parts: Any, patience: float) -> None:
    async def main() -> None:
        worker, script = Worker(), Script()
        gate = script.hold("pass a")
        predict = worker.predict
        worker.predict = lambda rows: [script.happens("pass", "a"), predict(rows)][1]  # pyright: ignore[reportAttributeAccessIssue]
        queue = batching(parts, worker, max_batch=3)
        answers = [queue.submit(name, "r") for name in ("a", "gone", "b")]
        await reached(gate)
        answers[1].cancel()
        gate.open.set()
        later = [queue.submit(name, "r") for name in "def"]
        found = await outcomes([*answers, *later], patience, "nobody was answered after one caller hung up")
        assert found == ["a", None, "b", "d", "e", "f"]
        queue.close()

    try:
        run(main())
    except asyncio.InvalidStateError:
        pytest.fail("nobody was answered after one caller hung up")


def test_a_wrong_number_of_results_fails_them_all(parts: Any, patience: float) -> None:
    async def main() -> None:
        queue = batching(parts, Worker(), max_batch=3)
        complaint = "results were dealt out although their number was wrong"
        found = await outcomes([queue.submit(name, "r") for name in ("a", "missing", "b")], patience, complaint)
        assert all(isinstance(error, stage.errors.WorkerFailed) for error in found), complaint
        assert "a returned 2 results for 3 inputs" in str(found[0])
        later = [queue.submit(name, "r") for name in "def"]
        assert await outcomes(later, patience, "the queue died") == list("def")
        queue.close()

    run(main())


def test_whoever_comes_during_a_pass_rides_in_the_next_one_together() -> None:
    async def main() -> None:
        worker, script = Worker(), Script()
        gate = script.hold("pass a")
        predict = worker.predict
        worker.predict = lambda rows: [script.happens("pass", "a"), predict(rows)][1]  # pyright: ignore[reportAttributeAccessIssue]
        queue = batching(stage.parts.Parts(), worker, max_batch=8, max_delay_ms=0)
        first = queue.submit("first", "r")
        await reached(gate)
        others = [queue.submit(name, "r") for name in "abcde"]
        gate.open.set()
        await outcomes([first, *others], 30, "no answer")
        assert worker.batches == [["first"], list("abcde")]
        queue.close()

    run(main())


def test_closing_answers_whoever_is_parked() -> None:
    async def main() -> None:
        queue = batching(stage.parts.Parts(), Worker())
        parked = queue.submit("a", "r")
        queue.close()
        [error] = await outcomes([parked], 30, "no answer")
        assert isinstance(error, stage.errors.EngineDead)

    run(main())
