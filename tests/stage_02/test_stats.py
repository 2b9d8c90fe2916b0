"""The whole of `/stats` against the model's own count."""

import asyncio
from typing import Any

import pytest

from tests.forwards import Forwards, InProcess, counts
from tests.serving import Stage

stage = Stage("02_static_batching")
PROMPTS = ["Count from 3 to 5:", "Explain the KV cache in one sentence.", "Count from 20 to 90:", "word " * 2000]
PROMPTS += ["Count from 3 to 9:", "Count from 41 to 44:"]


def test_stats_agree_with_the_model(tiny_opt: tuple[Any, Any]) -> None:
    """Six callers make two batches; in the first, one is refused, and the short wait for the long."""
    tokens: list[int] = []

    class Told(stage.worker.Worker):
        def execute(self, batch: list[Any]) -> Any:
            results, work = super().execute(batch)
            tokens.extend(result.tokens for result in results if isinstance(result, stage.sequence.Completion))
            return results, work

    executor = InProcess(Told(*tiny_opt))
    executor.start()
    scheduler = stage.scheduler.Scheduler(batch_size=4, max_queue=128)
    engine = stage.engine.Engine(executor, scheduler, stage.trace.Tracer())

    async def six() -> list[Any]:
        asking = asyncio.gather(*(engine.generate({"prompt": one}, 50) for one in PROMPTS), return_exceptions=True)
        await asyncio.sleep(0)  # all have come
        engine.start()
        return await asking

    with Forwards(tiny_opt[0]) as seen:
        outcomes = asyncio.run(six())
    engine.close()
    assert [type(outcome) for outcome in outcomes].count(stage.errors.Refused) == 1
    assert outcomes[0] == [" 3 4 5"]
    idle = sum(seen.rows) - sum(tokens)
    assert idle >= 46
    assert sum(seen.padding) > 0
    expected = seen.stats(passes=2, rows_per_pass=2.5, idle=idle, completed=5, refused=1)
    assert counts(engine.snapshot()) == expected


def test_a_refused_prompt_costs_no_pass(tiny_opt: tuple[Any, Any]) -> None:
    engine: Any = stage.engine.Engine(
        InProcess(stage.worker.Worker(*tiny_opt)), stage.scheduler.Scheduler(4, 128), stage.trace.Tracer()
    )
    engine.start()
    with Forwards(tiny_opt[0]) as seen, pytest.raises(stage.errors.Refused) as refused:
        asyncio.run(engine.generate({"prompts[1]": "word " * 2000}, 50))
    engine.close()
    assert refused.value.field == "prompts[1]"
    assert seen.rows == []
    stats = engine.snapshot()
    assert (stats["passes"], stats["forward_passes"], stats["queue_seconds"]) == (0, 0, 0)
    assert stats["requests"]["refused"] == 1
