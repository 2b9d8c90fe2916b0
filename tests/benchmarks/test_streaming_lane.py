"""The client on stage 03's real streaming lane: right answers, times of pieces, and trouble that comes mid-stream."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.load import Client, closed_loop
from benchmarks.prompts import count, counting, fixed
from benchmarks.records import Record, Run, summarize
from benchmarks.scenarios import no_cache
from benchmarks.targets import Target, running_target
from tests.serving import Stage, serving

stage = Stage("03_continuous_streaming")


@pytest.fixture(scope="module")
def lane() -> Iterator[Target]:
    with running_target("03", "tiny-opt") as target:
        yield target.lanes()[-1]


def test_streams_are_right_and_their_pieces_are_timed(lane: Target) -> None:
    async def main() -> Run:
        async with Client(lane.url, lane.path) as client:
            return await closed_loop(client.send, counting(4, 12, seed=1), users=4, seconds=60.0, requests=12)

    run = asyncio.run(main())
    cell = summarize([run])
    assert (cell["completed"], cell["errors"]) == (12, {})
    for record in run.records:
        assert len(record.pieces) == record.tokens - 1  # a piece for each number, none for the stop token
        assert record.scheduled < record.pieces[0] <= record.pieces[-1] <= record.finished
    assert 0 < cell["ttft"]["p50"] <= cell["ttft"]["p95"] < cell["latency"]["max"]
    assert 0 < cell["inter_token"]["p50"] <= cell["inter_token"]["p99"]


def test_the_counters_agree_with_the_formula(lane: Target) -> None:
    async def main() -> list[tuple[float, int]]:
        async with Client(lane.url, lane.path) as client:
            return [await no_cache.one(client, tokens) for tokens in (1, 20)]

    [(_, prompt), (_, positions)] = asyncio.run(main())
    assert (prompt, positions) == (1, no_cache.attended(1, 20))


def ask(url: str, path: str) -> Record:
    async def main() -> Record:
        async with Client(url, path) as client:
            return await client.send(next(fixed("7", 5)), asyncio.get_running_loop().time())

    return asyncio.run(main())


def test_trouble_in_the_middle_of_a_stream_is_an_error_and_no_answer() -> None:
    parts = replace(stage.parts.Parts(), worker="tests.benchmarks.mid_stream:Worker")
    with serving(stage.server.create_app(stage.settings.Settings(), parts)) as client:
        record, blocking = (ask(str(client.base_url), path) for path in ("/generate_stream", "/basic_generate"))
    assert (record.outcome, record.tokens, len(record.pieces)) == ("stream error", 0, 2)
    assert blocking.outcome == "500"
    assert summarize([Run([record, blocking], 0.0, 1.0)])["errors"] == {"stream error": 1, "500": 1}


def test_a_prompt_that_the_lane_refuses_is_known_by_its_status(lane: Target) -> None:
    async def main() -> Record:
        async with Client(lane.url, lane.path) as client:
            return await client.send(replace(count(3, 9), max_new_tokens=513), 0.0)

    assert asyncio.run(main()).outcome == "422"
