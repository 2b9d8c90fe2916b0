"""What scenarios compute, and how they bound themselves; no server, and virtual time."""

import asyncio
import json
from collections import Counter
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import gantt
from benchmarks.load import Client
from benchmarks.prompts import Prompt, counting
from benchmarks.records import Record, Run, WrongAnswers, summarize
from benchmarks.scenarios import (
    admission,
    budget,
    cores,
    no_cache,
    open_loop,
    prefix,
    slots,
    smollm2,
    step_cost,
    streams,
    zipf,
)
from benchmarks.targets import Target
from benchmarks.timeline import Held
from benchmarks.turns import in_turns
from tests.stage_07 import core

from .samples import step_cost_result
from .virtual_time import run


def test_a_server_that_streams_is_measured_on_both_lanes() -> None:
    assert [(lane.name, lane.path) for lane in Target("03", "http://127.0.0.1:1").lanes()] == [
        ("03", "/basic_generate"),
        ("03_stream", "/generate_stream"),
    ]
    assert Target("02", "http://127.0.0.1:1").lanes() == [Target("02", "http://127.0.0.1:1", "/basic_generate")]
    [stream] = Target("06", "http://127.0.0.1:1", more={"model_id": "x"}).lanes()
    assert (stream.name, stream.path, stream.more) == ("06_stream", "/generate_stream", {"model_id": "x"})


@given(st.integers(1, 40), st.integers(1, 60))
def test_attended_positions_are_the_rows_of_all_steps_added_up(prompt: int, tokens: int) -> None:
    assert no_cache.attended(prompt, tokens) == sum(prompt + step for step in range(tokens))
    assert no_cache.with_cache(prompt, tokens) == prompt + len(range(1, tokens))


def test_512_tokens_after_one_cost_256_and_a_half_times_what_a_cache_would() -> None:
    assert no_cache.cell(1, 512, [3.0, 1.0, 2.0])["ratio"] == 256.5
    assert no_cache.cell(1, 512, [3.0, 1.0, 2.0])["seconds"] == 2.0


def test_first_text_is_the_first_piece_or_where_nothing_streams_the_whole_answer() -> None:
    streamed, whole = Record(10.0, 14.0, "ok", 5, pieces=(11.0, 13.0)), Record(10.0, 14.0, "ok", 25)
    cell = open_loop.cell("03", 20.0, 12.0, [Run([streamed, whole, Record(10.0, 11.0, "503")], 10.0, 5.0)])
    assert (cell["load"], cell["errors"]) == (0.6, {"503": 1})
    assert (cell["first"]["p50"], cell["first"]["max"], cell["latency"]["max"]) == (1.0, 4.0, 4.0)
    assert (cell["quantiles"]["first"][49], cell["quantiles"]["full"][99]) == (1.0, 4.0)
    assert cell["full_by_length"] == [4.0, None, 4.0, None, None]


def test_every_length_has_its_group_and_every_prompt_is_allowed_by_every_lane() -> None:
    groups = [range(low, high + 1) for low, high in open_loop.LENGTHS]
    for prompt, _ in zip(counting(open_loop.SHORTEST, open_loop.LONGEST, 1), range(500), strict=False):
        assert sum(prompt.tokens in group for group in groups) == 1
        assert prompt.max_new_tokens <= 50


def test_one_more_row_is_the_slope_from_the_fewest_to_the_most() -> None:
    assert step_cost.one_more(step_cost_result(), "tiny-opt") == pytest.approx(0.001)
    one = {"forward_passes": 8.0, "row_steps": 16.0, "positions_attended": 184.0}
    rounds = [{"forward_seconds": seconds, **one} for seconds in (1.0, 2.0, 9.0)]
    cell = step_cost.cell("tiny-opt", 2, rounds)
    assert (cell["step_seconds"], cell["positions"], cell["rounds"]) == (0.25, 11.5, 3)


def test_quarters_end_with_the_frames_that_shorter_streams_had() -> None:
    frames = [63, 126, 189, 250]  # of 64, 128, 192 and 256 tokens
    record = Record(10.0, 99.0, "ok", 256, pieces=tuple(10.0 + 0.64 * (at + 1) / 63 for at in range(250)))
    *equal, last = streams.quarters(record, frames)
    assert (equal, last) == (pytest.approx([0.01] * 3), pytest.approx(0.01 * 61 / 63))


def test_the_first_of_five_models_is_asked_most_and_everybody_asks_the_same() -> None:
    one, other = ([json.loads(question.body)["model_id"] for question in islice(zipf.zipf(1), 2000)] for _ in range(2))
    assert one == other
    assert [name for name, _ in Counter(one).most_common()] == [*zipf.MODELS]
    assert Counter(one)["shapes"] == pytest.approx(2000 / sum(1 / rank for rank in range(1, 6)), rel=0.1)


class Slow(Client):
    """A client whose server takes its time, one request after the other."""

    def __init__(self, seconds: float) -> None:
        super().__init__("http://127.0.0.1:1")
        self.seconds = seconds
        self.turn = asyncio.Lock()

    async def send(self, prompt: Prompt, scheduled: float) -> Record:
        try:
            async with asyncio.timeout(self.timeout), self.turn:
                await asyncio.sleep(self.seconds)
        except TimeoutError:
            return Record(scheduled, asyncio.get_running_loop().time(), "timeout")
        return Record(scheduled, asyncio.get_running_loop().time(), "ok", prompt.tokens)


def boxed(service: float, users: int, box: float) -> tuple[Run, float]:
    async def main() -> tuple[Run, float]:
        return await smollm2.boxed(Slow(service), users, box), asyncio.get_running_loop().time()

    return run(main())


def test_people_ask_in_the_first_third_and_the_window_lasts_until_the_last_answer() -> None:
    one, ended = boxed(service=1.0, users=4, box=60.0)
    assert (len(one.records), one.window, ended) == (23, pytest.approx(23.0), pytest.approx(23.0))
    assert max(record.scheduled for record in one.records) < 20.0
    assert summarize([one])["tokens_per_second"] == pytest.approx(32.0)


def test_what_does_not_come_within_the_box_is_given_up() -> None:
    one, ended = boxed(service=11.0, users=16, box=60.0)
    assert summarize([one])["errors"] == {"timeout": 12}
    assert summarize([one])["completed"] == 5
    assert (one.window, ended) == (pytest.approx(60.0), pytest.approx(60.0, abs=0.2))


def test_a_static_batch_ends_before_the_next_one_begins() -> None:
    """The rule, at the scheduler's contract: who comes later waits until nobody runs, however many places are free."""
    parts = core.Parts(scheduler="benchmarks.peers.static_scheduler:StaticScheduler")
    static, own = (core.scheduler(which, num_blocks=40, caching=False) for which in (parts, core.Parts()))
    for scheduler in (static, own):
        for name, tokens in (("A", 2), ("B", 4)):
            scheduler.add(core.request(name, 5, tokens))
        assert core.names(core.run_step(scheduler)[0]) == "A5 B5"
        scheduler.add(core.request("C", 5, 2))
    steps = [[core.names(core.run_step(scheduler)[0]) for _ in range(5)] for scheduler in (static, own)]
    assert steps == [["A1 B1", "B1", "B1", "C5", "C1"], ["A1 B1 C5", "B1 C1", "B1", "", ""]]


def test_settings_of_an_engine_become_flags() -> None:
    told = admission.flags({"enforce_eager": True, "enable_prefix_caching": False, "max_num_seqs": 16})
    assert told == ["--enforce-eager", "--no-enable-prefix-caching", "--max-num-seqs", "16"]


def test_lengths_are_skewed_and_everybody_asks_the_same() -> None:
    one, other = ([prompt.tokens for prompt in islice(admission.mixed(1), 500)] for _ in range(2))
    assert one == other
    assert 15 < sorted(one)[250] < 25 < sum(one) / 500 < max(one) == admission.MOST


def test_the_most_streams_at_once_are_those_that_the_server_told_of() -> None:
    class Scripted(Client):
        looks = iter([{"running": 3}, {"streams_running": 7, "running": 99}, {"running": 5}])

        async def get(self, path: str, **query: float) -> Any:
            return next(self.looks, {"running": 0})

    async def main() -> int:
        watch = asyncio.create_task(budget.most_at_once(Scripted("http://127.0.0.1:1")))
        await asyncio.sleep(10)
        watch.cancel()
        return await watch

    assert run(main()) == 7


@pytest.mark.parametrize(("hits", "right"), [((0, 256), True), ((0, 0), False), ((16, 256), False)])
def test_a_prefix_that_was_not_found_is_no_measurement(hits: tuple[int, int], right: bool) -> None:
    class Scripted(Client):
        totals = iter([0, hits[0], hits[0], sum(hits)])

        async def get(self, path: str, **query: float) -> Any:
            return {"prefix_hits": next(self.totals)}

        async def send(self, prompt: Prompt, scheduled: float) -> Record:
            return Record(1.0, 3.0, "ok", pieces=(2.0, 2.5))

    pair = [prefix.Ids("", 4, 4, ids=(1, 2))] * 2
    assert pair[0].body()["prompt"] == [1, 2]
    asked = prefix.both(prefix.CACHED, Scripted("http://127.0.0.1:1"), pair)
    if right:
        assert asyncio.run(asked) == (1.0, 1.0)
    else:
        with pytest.raises(WrongAnswers, match="the two requests found"):
            asyncio.run(asked)


def test_each_core_has_its_share_of_the_rows() -> None:
    assert (cores.rows({}), cores.rows({"work": {"rows": 7.0}})) == (0, 7)
    halves = [(Run([Record(0.0, 1.0, "ok", 5)], 0.0, 1.0), [30, 10]), (Run([], 0.0, 1.0), [30, 30])]
    found = cores.cell("two_cores", halves)
    assert (found["shares"], found["cores"], found["threads"]) == ([0.6, 0.4], 2, 1)


def test_tokens_that_a_server_did_not_make_are_found_out() -> None:
    before = {"row_steps": 100, "idle_row_steps": 10}
    smollm2.check_tokens("02", 2, before, {"row_steps": 170, "idle_row_steps": 16})
    with pytest.raises(WrongAnswers, match="stage 02 made 60 tokens for 2 requests of 32"):
        smollm2.check_tokens("02", 2, before, {"row_steps": 160, "idle_row_steps": 10})


def test_six_requests_can_be_told_apart_and_the_late_ones_come_late() -> None:
    answers = [prompt.answer for prompt in slots.PROMPTS.values()]
    assert len({*answers}) == 6
    assert {*slots.AT_ONCE, *slots.LATER} == {*slots.PROMPTS} == {*gantt.COLORS}
    e, f = slots.arrivals()
    assert 0.01 < e < f < 0.1
    held = [Held(name, 1, at, at, at, at) for name, at in (("A", 0.0), ("E", e + 0.002), ("F", f - 0.001))]
    assert slots.lateness(held) == pytest.approx(0.002)


@pytest.mark.parametrize("found", [{"forward_passes": 7, "row_steps": 14}, {"forward_passes": 8, "row_steps": 15}])
def test_steps_that_others_had_a_part_in_are_no_measurement(found: dict[str, Any]) -> None:
    zero = dict.fromkeys(step_cost.COUNTERS, 0)

    class Scripted(Client):
        looks = iter([zero, zero | found])

        async def get(self, path: str, **query: float) -> Any:
            return next(self.looks)

        async def post(self, path: str, body: dict[str, Any]) -> Any:
            assert body["max_new_tokens"] == step_cost.STEPS
            assert len(body["prompts"]) == 2
            return {}

    with pytest.raises(WrongAnswers, match="8 steps of 2 rows were"):
        asyncio.run(step_cost.steps(Scripted("http://127.0.0.1:1"), "one two", 2))


def test_servers_take_turns_and_the_second_half_is_the_first_one_backwards() -> None:
    asked: list[str] = []

    async def measure(target: Target, half: int) -> int:
        asked.append(target.name)
        return half

    found = in_turns([Target(name, "http://127.0.0.1:1") for name in "abc"], measure, lambda _: None)
    assert asked == [*"abc", *"cba"]
    assert found == {name: [0, 1] for name in "abc"}
