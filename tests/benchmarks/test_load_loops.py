"""The two loops, in virtual time: who sends when, what bounds them, and whose clock a slow server is on."""

import asyncio
from collections.abc import Iterator
from itertools import islice, pairwise

import pytest

from benchmarks.load import PAUSE, Send, closed_loop, open_loop, poisson_arrivals
from benchmarks.prompts import Prompt, count, counting, fixed
from benchmarks.records import Record, Run, WrongAnswers, summarize

from .virtual_time import run


def prompts() -> Iterator[Prompt]:
    return counting(1, 9, seed=1)


def server(service: float, lanes: int, outcome: str = "ok") -> Send:
    """A scripted server that serves `lanes` requests at a time, `service` seconds each, first come first served."""
    free = asyncio.Semaphore(lanes)

    async def send(prompt: Prompt, scheduled: float) -> Record:
        async with free:
            await asyncio.sleep(service)
        return Record(scheduled, asyncio.get_running_loop().time(), outcome, prompt.tokens)

    return send


def closed(service: float, lanes: int, users: int, seconds: float, requests: int = 10**6, outcome: str = "ok") -> Run:
    async def main() -> Run:
        return await closed_loop(server(service, lanes, outcome), prompts(), users, seconds, requests)

    return run(main())


def test_ten_users_of_a_server_that_takes_one_at_a_time_wait_ten_times_as_long() -> None:
    cell = summarize([closed(service=1.0, lanes=1, users=10, seconds=1000.0)])
    assert cell["latency"]["p50"] == pytest.approx(10.0)
    assert cell["requests_per_second"] == pytest.approx(1.0)


def test_a_closed_loop_never_has_more_requests_out_than_users() -> None:
    records = closed(service=1.0, lanes=100, users=4, seconds=10.0).records
    assert max(sum(r.scheduled <= at < r.finished for r in records) for at in [r.scheduled for r in records]) == 4


def test_a_closed_loop_ends_after_its_seconds_and_after_its_requests() -> None:
    by_time = closed(service=3.0, lanes=9, users=2, seconds=10.0)
    assert (len(by_time.records), by_time.window) == (8, 10.0)
    assert max(record.scheduled for record in by_time.records) < 10.0
    by_number = closed(service=3.0, lanes=9, users=2, seconds=1000.0, requests=6)
    assert (len(by_number.records), by_number.window) == (6, pytest.approx(9.0))


def test_a_warm_up_puts_servers_that_take_turns_and_servers_that_share_on_a_par() -> None:
    """Four lanes of four seconds do as much as one lane of one second, but at first they finish nothing."""

    async def rate(service: float, lanes: int, warmup: float) -> float:
        asked = closed_loop(server(service, lanes), prompts(), 4, 7.5, 10**6, warmup)
        return summarize([await asked])["requests_per_second"]

    assert run(rate(1.0, 1, warmup=0.0)) == pytest.approx(7 / 7.5)
    assert run(rate(4.0, 4, warmup=0.0)) == pytest.approx(4 / 7.5)
    assert run(rate(1.0, 1, warmup=2.5)) == pytest.approx(8 / 7.5)
    assert run(rate(4.0, 4, warmup=2.5)) == pytest.approx(8 / 7.5)


def test_a_wrong_answer_during_the_warm_up_counts() -> None:
    async def send(_: Prompt, scheduled: float) -> Record:
        await asyncio.sleep(1.0)
        now = asyncio.get_running_loop().time()
        return Record(scheduled, now, "wrong" if now < 3 else "ok")

    with pytest.raises(WrongAnswers):
        summarize([run(closed_loop(send, prompts(), 1, 6.0, 100, warmup=4.0))])


def test_a_server_that_refuses_at_once_is_not_hammered() -> None:
    records = closed(service=0.0, lanes=1, users=1, seconds=10.0, outcome="503").records
    assert len(records) <= 10.0 / PAUSE + 1


def test_an_open_loop_charges_the_server_for_a_stall() -> None:
    """Coordinated omission: each answer takes one second of service, but people wait in line for it."""

    async def main() -> Run:
        return await open_loop(server(service=1.0, lanes=1), prompts(), [0.5 * number for number in range(100)], 50.0)

    cell = summarize([run(main())])
    assert cell["latency"]["max"] == pytest.approx(100 - 49.5)
    assert cell["latency"]["p50"] == pytest.approx(25.5, abs=1)


def test_an_open_loop_sends_on_time_however_slow_the_server_is() -> None:
    arrivals, sent = [1.0, 2.0, 2.0, 5.0], []

    async def send(_: Prompt, scheduled: float) -> Record:
        sent.append(asyncio.get_running_loop().time())
        await asyncio.sleep(100.0)
        return Record(scheduled, asyncio.get_running_loop().time(), "ok")

    result = run(open_loop(send, prompts(), arrivals, 6.0))
    assert sent == pytest.approx(arrivals)
    assert [record.scheduled for record in result.records] == arrivals


def test_a_late_sender_is_charged_to_the_latency() -> None:
    async def send(_: Prompt, scheduled: float) -> Record:
        return Record(scheduled, scheduled + 1.0, "ok")

    result = run(open_loop(send, prompts(), [-3.0, 0.0], 1.0))
    assert [record.scheduled for record in result.records] == [-3.0, 0.0]


def test_arrivals_are_seeded_sorted_and_as_many_as_the_rate_says() -> None:
    arrivals = poisson_arrivals(rate=50.0, seconds=200.0, seed=3)
    assert arrivals == poisson_arrivals(50.0, 200.0, 3) != poisson_arrivals(50.0, 200.0, 4)
    assert arrivals == sorted(arrivals)
    assert 0 < arrivals[0] < arrivals[-1] < 200.0
    assert abs(len(arrivals) - 10_000) < 400  # four standard deviations
    gaps = [b - a for a, b in pairwise(arrivals)]
    assert sum(gap > 0.02 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)  # exponential: 1/e


def test_counting_prompts_have_the_lengths_asked_for_and_the_right_answers() -> None:
    for prompt in islice(counting(4, 40, seed=2), 500):
        assert prompt.answer
        numbers = [int(number) for number in prompt.answer.split()]
        assert 4 <= len(numbers) <= 40
        assert prompt.text == f"Count from {numbers[0]} to {numbers[-1]}:"
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert prompt.tokens == len(numbers) + 1 <= prompt.max_new_tokens <= 50
    assert list(islice(counting(1, 9, 5), 20)) == list(islice(counting(1, 9, 5), 20))
    with pytest.raises(ValueError, match="1 to 100"):
        next(counting(5, 101, seed=1))


def test_the_longest_answer_leaves_room_to_run_past_its_stop_token() -> None:
    assert count(0, 99).max_new_tokens > count(0, 99).tokens == 101


def test_a_fixed_prompt_is_answered_with_exactly_its_tokens() -> None:
    prompt = next(fixed("Once upon a time", 32))
    assert prompt.body() == {"prompt": "Once upon a time", "max_new_tokens": 32, "ignore_eos": True}
    assert (prompt.tokens, prompt.answer) == (32, None)
