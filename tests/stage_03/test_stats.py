"""The whole of `/stats` against the model's own count."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.forwards import Forwards, InProcess, counts
from tests.serving import Stage

stage = Stage("03_continuous_streaming")
PROMPTS = ["Count from 3 to 9:", "Explain the KV cache in one sentence.", "Count from 41 to 44:", "What is a batch?"]


@contextmanager
def engine_around(tiny_opt: tuple[Any, Any], tokenizer: Any) -> Iterator[Any]:
    """The engine around the real worker, in this process."""
    executor, scheduler = InProcess(stage.worker.Worker(*tiny_opt)), stage.scheduler.Scheduler(16, 128)
    engine = stage.engine.Engine(executor, scheduler, tokenizer, stage.trace.Tracer())
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 9), (4, 7), (16, 3)])
def test_n_streams_of_k_tokens_are_exactly_k_forwards_of_n_rows(
    tiny_opt: tuple[Any, Any], tokenizer: Any, n: int, k: int
) -> None:
    prompts = {f"prompts[{place}]": PROMPTS[place % 4] + " Again." * (place // 4) for place in range(n)}
    with Forwards(tiny_opt[0]) as seen, engine_around(tiny_opt, tokenizer) as engine:

        async def streams() -> list[Any]:
            sequences = await engine.submit(prompts, stage.sequence.Sampling(k, 0.0, 0, ignore_eos=True))
            await engine.texts(sequences)
            return sequences

        sequences = asyncio.run(asyncio.wait_for(streams(), 30))
        snapshot = engine.snapshot()
    assert seen.rows == [n] * k
    assert counts(snapshot) == seen.stats(passes=k, rows_per_pass=n, completed=1)
    attended = sum(k * len(sequence.prompt_ids) + k * (k - 1) // 2 for sequence in sequences)
    assert snapshot["positions_attended"] == attended
    assert (snapshot["positions_padding"] > 0) == (n > 1)


def test_stats_agree_with_the_model_while_streams_come_and_go(tiny_opt: tuple[Any, Any], tokenizer: Any) -> None:
    with Forwards(tiny_opt[0]) as seen, engine_around(tiny_opt, tokenizer) as engine:

        async def one(prompt: str, tokens: int) -> int:
            [sequence] = await engine.submit({"prompt": prompt}, stage.sequence.Sampling(tokens, 0.0, 0))
            assert [piece async for piece, _ in engine.pieces(sequence)]
            return len(sequence.output_ids)

        async def some() -> list[int]:
            asking = [one(prompt, tokens) for prompt, tokens in zip(PROMPTS * 3, range(1, 13), strict=True)]
            tokens = await asyncio.gather(*asking)
            with pytest.raises(stage.errors.Refused):
                await one("word " * 2000, 1)
            return tokens

        tokens = asyncio.run(asyncio.wait_for(some(), 30))
        snapshot = engine.snapshot()
    assert sum(seen.rows) == sum(tokens)
    steps = len(seen.rows)
    assert counts(snapshot) == seen.stats(steps, sum(tokens) / steps, completed=12, refused=1)
