"""Engine, scheduler and mailboxes around a scripted executor: no process, no HTTP."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.serving import Stage, eventually

stage = Stage("03_continuous_streaming")
WORD = 300  # any id that is no special token


def run(work: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
    """Run a coroutine to its end, within bounds."""
    return asyncio.run(asyncio.wait_for(work, seconds))


def sampling(tokens: int = 4, **options: Any) -> Any:
    return stage.sequence.Sampling(tokens, 0.0, 0, **options)


def word(rows: list[Any]) -> list[Any]:
    return [stage.sequence.Token(WORD, False) for _ in rows]


async def read(engine: Any, sequence: Any) -> tuple[int, str | None]:
    """How many tokens a sequence got, straight from its mailbox, and how it ended."""
    count, reason = 0, None
    while not reason:
        _, reason = await sequence.mailbox.get()
        count += 1
    return count, reason


def test_who_hangs_up_costs_nobody_a_token(parts: Any, patience: float, engine: Callable[..., Any]) -> None:
    steps: list[int] = []
    submitted: list[Any] = []

    def script(rows: list[Any]) -> list[Any]:
        steps.append(len(rows))
        if steps.count(2) == 2:
            built.abort(submitted[0])  # it leaves while its token is being computed
        return word(rows)

    with engine(parts, script) as built:

        async def two() -> tuple[int, str | None]:
            submitted.extend(await built.submit({"one": "one", "two": "two"}, sampling(6)))
            return await asyncio.wait_for(read(built, submitted[1]), patience)

        try:
            count, _ = run(two())
        except TimeoutError:
            pytest.fail("lost a token when somebody else hung up, and waits for it")
    assert count == 6, "lost a token when somebody else hung up"


def test_who_hangs_up_in_the_queue_is_never_run(parts: Any, engine: Callable[..., Any]) -> None:
    ran: list[str] = []

    def script(rows: list[Any]) -> list[Any]:
        ran.extend(row.request_id for row in rows)
        entered.set()
        assert go.wait(30)
        return word(rows)

    entered, go = threading.Event(), threading.Event()
    with engine(parts, script, batch_size=1) as built:

        async def three() -> Any:
            [first] = await built.submit({"prompt": "first"}, sampling(2))
            await asyncio.to_thread(entered.wait, 30)
            [gone] = await built.submit({"prompt": "gone"}, sampling(2))
            built.abort(gone)
            [last] = await built.submit({"prompt": "last"}, sampling(2))
            go.set()
            assert await read(built, first) == await read(built, last) == (2, "length")
            return gone

        gone = run(three())
        assert gone.request_id not in ran, "a sequence that nobody waits for was run"
        assert built.snapshot()["queued"] == built.snapshot()["running"] == 0


def seen_by_the_model(parts: Any, engine: Callable[..., Any], tokenizer: Any, chosen: list[int]) -> list[list[int]]:
    """Have the model choose these ids one after another; the output ids that it sees at each step."""
    seen: list[list[int]] = []
    prompt = tokenizer.rust.encode("Say it:").ids

    def script(rows: list[Any]) -> list[Any]:
        seen.append(rows[0].ids[len(prompt) :])
        return [stage.sequence.Token(chosen[rows[0].new], False)]

    with engine(parts, script) as built:

        async def one() -> None:
            [sequence] = await built.submit({"prompt": "Say it:"}, sampling(len(chosen)))
            await read(built, sequence)

        run(one())
    return seen


def test_the_model_sees_the_very_ids_it_chose(parts: Any, engine: Callable[..., Any], tokenizer: Any) -> None:
    chosen = tokenizer.rust.encode("推論 🧠").ids
    assert len(chosen) > 4  # its characters span tokens
    seen = seen_by_the_model(parts, engine, tokenizer, chosen)
    assert seen == [chosen[:place] for place in range(len(chosen))], "the ids drifted"


def test_pieces_that_could_be_merged_stay_apart(parts: Any, engine: Callable[..., Any], tokenizer: Any) -> None:
    chosen = [tokenizer.rust.token_to_id(letter) for letter in "the"]
    assert tokenizer.rust.encode("the").ids != chosen  # the tokenizer itself would merge them
    seen = seen_by_the_model(parts, engine, tokenizer, chosen)
    assert seen == [[], chosen[:1], chosen[:2]], "pieces were merged into what the model never chose"


def test_a_request_joins_in_the_step_after_it_arrives(engine: Callable[..., Any]) -> None:
    sizes: list[int] = []
    first_step, second_is_queued = threading.Event(), threading.Event()

    def script(rows: list[Any]) -> list[Any]:
        sizes.append(len(rows))
        first_step.set()
        assert second_is_queued.wait(30)
        return word(rows)

    with engine(stage.parts.Parts(), script) as built:

        async def two() -> None:
            [early] = await built.submit({"prompt": "early"}, sampling(3))
            await asyncio.to_thread(first_step.wait, 30)
            [late] = await built.submit({"prompt": "late"}, sampling(3))
            second_is_queued.set()
            await asyncio.gather(read(built, early), read(built, late))

        run(two())
    assert sizes == [1, 2, 2, 1]


def test_a_step_that_raises_fails_the_guilty_alone(engine: Callable[..., Any]) -> None:
    def script(rows: list[Any]) -> list[Any]:
        if any(row.new == 1 and row.request_id in guilty for row in rows):
            raise stage.errors.WorkerFailed("poison")
        return word(rows)

    guilty: list[str] = []
    with engine(stage.parts.Parts(), script) as built:

        async def two() -> Any:
            one, other = await built.submit({"one": "one", "other": "other"}, sampling(3))
            guilty.append(one.request_id)
            return await asyncio.gather(read(built, one), read(built, other), return_exceptions=True)

        failed, fine = run(two())
    assert isinstance(failed, stage.errors.WorkerFailed)
    assert fine == (3, "length")


def test_a_slow_reader_frees_its_place_and_is_told(engine: Callable[..., Any]) -> None:
    """It reads one piece and no more, while another, who reads, gets all of its tokens."""
    steps: list[int] = []

    class Small(stage.mailbox.Mailbox):
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            super().__init__(loop, backlog=2)

    def script(rows: list[Any]) -> list[Any]:
        steps.append(len(rows))
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loops[0]).result(30)  # the loop keeps up with the model
        return word(rows)

    loops: list[asyncio.AbstractEventLoop] = []
    with engine(stage.parts.Parts(mailbox=Small), script) as built:

        async def one_reads() -> tuple[int, str | None]:
            loops.append(asyncio.get_running_loop())
            slow, quick = await built.submit({"slow": "slow", "quick": "quick"}, sampling(100))
            stream = built.pieces(slow)
            assert await anext(stream)
            reading = await read(built, quick)
            with pytest.raises(stage.mailbox.TooSlow):
                async for _ in stream:
                    pass
            return reading

        assert run(one_reads()) == (100, "length")
        assert built.snapshot()["running"] == 0
    assert steps[:2] == [2, 2]
    assert steps.count(1) > 90  # the slow one left the batch, and cost nothing any more


def refuses(built: Any) -> bool:
    """Whether the engine takes nothing any more."""
    try:
        built.admit([])
    except stage.errors.EngineDead:
        return True
    return False


def test_closing_ends_every_stream_with_a_reason(engine: Callable[..., Any]) -> None:
    held, go = threading.Event(), threading.Event()

    def script(rows: list[Any]) -> list[Any]:
        held.set()
        assert go.wait(30)
        return word(rows)

    with engine(stage.parts.Parts(), script, batch_size=1) as built:

        async def two() -> list[Any]:
            sequences = await built.submit({"running": "a", "queued": "b"}, sampling(512))
            await asyncio.to_thread(held.wait, 30)
            reading = asyncio.gather(*(read(built, one) for one in sequences), return_exceptions=True)
            closing = asyncio.ensure_future(asyncio.to_thread(built.close))
            await asyncio.to_thread(eventually, lambda: refuses(built), "that it closes")
            go.set()
            await closing
            return await reading

        outcomes = run(two())
    assert [repr(outcome) for outcome in outcomes] == [repr(stage.errors.EngineDead("the server is closing"))] * 2
    with pytest.raises(stage.errors.EngineDead, match="closing"):
        run(built.submit({"prompt": "late"}, sampling()))


def test_counters_add_up(engine: Callable[..., Any]) -> None:
    with engine(stage.parts.Parts(), word) as built:

        async def some() -> None:
            await built.texts(await built.submit({"one": "one", "two": "two"}, sampling(3)))
            with pytest.raises(stage.errors.Refused):
                await built.submit({"prompt": "word " * 2000}, sampling(3))
            [gone] = await built.submit({"prompt": "gone"}, sampling(200))
            stream = built.pieces(gone)
            await anext(stream)
            await stream.aclose()

        run(some())
        counted = built.snapshot()
    assert counted["requests"] == {"completed": 1, "refused": 1, "failed": 0, "hung_up": 1}
