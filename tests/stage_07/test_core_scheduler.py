"""The scheduler alone: pure. `names(step)` reads "A8 B1": who is in a step, and with how many tokens."""

import sys
from typing import Any

import pytest

from tests.stage_07.core import BLOCK, STOP, check_pool, names, outcomes, request, run_step, scheduler, stage

NeverFits, QueueFull, Status = stage.scheduler.NeverFits, stage.scheduler.QueueFull, stage.request.Status


def steps_to_the_end(engine: Any, limit: int = 400) -> list[str]:
    """Run until nothing is left; who was in each step."""
    seen: list[str] = []
    while engine.requests:
        assert len(seen) < limit, "it does not end"
        step, _ = run_step(engine)
        assert step.scheduled, "nobody runs, and somebody waits"
        seen.append(names(step))
    return seen


def test_running_first_then_who_waits_first_come_first_served() -> None:
    engine = scheduler(num_blocks=20)
    engine.add(request("A", 17, max_tokens=4))
    assert names(run_step(engine)[0]) == "A17"
    for name in "BCD":
        engine.add(request(name, 5, max_tokens=2))
    assert steps_to_the_end(engine) == ["A1 B5 C5 D5", "A1 B1 C1 D1", "A1"]


def test_17_prompt_tokens_join_three_decodes_in_a_step_of_20() -> None:
    engine = scheduler(num_blocks=30)
    for name in "ABC":
        engine.add(request(name, 6))
    run_step(engine)
    engine.add(request("D", 17))
    step, _ = run_step(engine)
    assert names(step) == "A1 B1 C1 D17"
    assert sum(count for _, count in step.scheduled) == 20


def test_max_num_seqs_caps_what_runs_not_what_a_step_admits() -> None:
    engine = scheduler(num_blocks=40, max_num_seqs=2)
    for name in "ABCD":
        engine.add(request(name, 4, max_tokens=3))
    seen = steps_to_the_end(engine)
    assert seen == ["A4 B4", "A1 B1", "A1 B1", "C4 D4", "C1 D1", "C1 D1"]


def test_a_long_prompt_is_computed_in_chunks_that_leave_the_decodes_their_tokens() -> None:
    engine = scheduler(num_blocks=40, max_num_batched_tokens=32)
    engine.add(request("A", 5))
    run_step(engine)
    engine.add(request("B", 70, max_tokens=2))
    engine.add(request("C", 5, max_tokens=2))
    assert steps_to_the_end(engine)[:4] == ["A1 B31", "A1 B31", "A1 B8 C5", "A1 B1 C1"]


def test_a_chunk_that_is_not_the_last_samples_nothing() -> None:
    engine = scheduler(num_blocks=40, max_num_batched_tokens=32, max_num_seqs=4)
    engine.add(request("A", 40, max_tokens=1))
    _, first = run_step(engine)
    _, second = run_step(engine)
    assert first == []
    assert [(output.request_id, output.token_ids, output.finish_reason) for output in second] == [("A", [9], "length")]


def test_every_16th_token_takes_one_more_block() -> None:
    engine = scheduler(num_blocks=10)
    engine.add(request("A", 17, max_tokens=40))
    sizes = []
    while engine.requests:
        step = engine.schedule()
        if blocks := step.popped.get("A"):
            sizes.append((step.scheduled[0][0].num_tokens, len(blocks)))
        engine.update(step, outcomes(step))
    assert sizes == [(17, 2), (33, 1), (49, 1)]


def test_the_blocks_of_who_finishes_serve_another_on_the_very_next_step() -> None:
    engine = scheduler(num_blocks=2)
    engine.add(request("A", 17, max_tokens=1))
    engine.add(request("B", 17, max_tokens=1))
    first, _ = run_step(engine)
    second, _ = run_step(engine)
    assert (names(first), names(second)) == ("A17", "B17")
    assert set(second.popped["B"]) == set(first.popped["A"])


def three_that_outgrow_the_pool() -> Any:
    """A, B and C with 14 tokens in a block each, one free block a head; D and E wait."""
    engine = scheduler(num_blocks=6, caching=False)
    for name in "ABCDE":
        engine.add(request(name, 14, max_tokens=40))
    run_step(engine)
    assert [request.request_id for request in engine.running] == ["A", "B", "C"]
    return engine


def test_the_newest_is_preempted_to_the_front_and_nobody_is_admitted_in_that_step() -> None:
    engine = three_that_outgrow_the_pool()
    step, _ = run_step(engine)
    while not step.preempted:
        step, _ = run_step(engine)
    assert [request.request_id for request in step.preempted] == ["C"]
    assert names(step) == "A1 B1"
    assert step.admitted == []
    assert list(engine.waiting) == ["C", "D", "E"]
    [again] = [request for request in engine.waiting.values() if request.request_id == "C"]
    assert again.num_computed_tokens == 0 and again.num_output_tokens > 0 and again.num_preemptions == 1


def test_who_was_preempted_loses_no_token_and_everybody_ends() -> None:
    engine = three_that_outgrow_the_pool()
    counted = dict.fromkeys("ABCDE", 0) | dict.fromkeys("ABC", 1)
    while engine.requests:
        _, outputs = run_step(engine)
        for output in outputs:
            counted[output.request_id] += len(output.token_ids)
    assert counted == dict.fromkeys("ABCDE", 40)
    assert engine.preemptions > 0
    assert engine.manager.pool.free == 6


def test_nobody_overtakes_the_first_who_does_not_fit() -> None:
    """B waits until it has the pool to itself, and C, for which there is room at once, waits behind B."""
    engine = scheduler(num_blocks=6)
    for name, prompt in (("A", 30), ("B", 80), ("C", 2)):
        engine.add(request(name, prompt, max_tokens=3))
    assert steps_to_the_end(engine) == ["A30", "A1", "A1", "B64", "B16", "B1", "B1", "C2", "C1", "C1"]


def test_nobody_is_preempted_just_after_being_admitted(parts: Any) -> None:
    """Admission leaves a block for each that runs, so a block's length of steps goes by before anybody has to go."""
    engine = scheduler(parts, num_blocks=24, caching=False, max_num_seqs=8, max_queue=64)
    for place in range(24):
        engine.add(request(f"{place} ", 10 + 7 * place % 50, max_tokens=20 + 11 * place % 60))
    admitted: dict[str, int] = {}
    number = computed = 0
    while engine.requests:
        step, _ = run_step(engine)
        number += 1
        computed += sum(count for _, count in step.scheduled)
        assert number < 2000, "it does not end"
        for one in step.preempted:
            stayed = number - admitted[one.request_id]
            assert stayed > BLOCK, f"preempted {stayed} steps after it was admitted"
        admitted |= {one.request_id: number for one in step.admitted}
    assert engine.preemptions > 0


def test_the_watermark_does_not_keep_out_one_that_needs_the_whole_pool() -> None:
    engine = scheduler(num_blocks=3)
    engine.add(request("A", 47, max_tokens=2))
    engine.add(request("B", 47, max_tokens=2))
    assert steps_to_the_end(engine) == ["A47", "A1", "B47", "B1"]


def test_a_request_that_the_pool_can_never_hold_is_refused(parts: Any) -> None:
    engine = scheduler(parts, num_blocks=4)
    told = []
    for one in (request("prompt", 70), request("answer", 30, max_tokens=60)):
        try:
            engine.add(one)
        except NeverFits as exc:
            told.append(str(exc))
            continue
        for _ in range(100):
            run_step(engine)
        assert one.status is Status.FINISHED, "waits for blocks that there will never be"
    assert told == [
        "78 tokens need 5 KV cache blocks, and the pool has 4",
        "90 tokens need 6 KV cache blocks, and the pool has 4",
    ]
    engine.add(request("fits", 30, max_tokens=35))
    assert len(steps_to_the_end(engine)) == 35


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (request("A", 500, max_tokens=20), r"520 tokens \(500 of the prompt, 20 new ones\) are more than the 512"),
        (request("A", []), "a prompt of 0 tokens"),
        (request("A", 5, max_tokens=0), "0 new ones"),
        (request("A", [5, 1000]), "token id 1000 is not in the vocabulary of 1000"),
        (request("A", [5, -1]), "token id -1 is not in the vocabulary"),
    ],
)
def test_what_can_never_be_served_is_refused_with_the_numbers(one: Any, said: str) -> None:
    engine = scheduler(num_blocks=100)
    with pytest.raises(NeverFits, match=said):
        engine.add(one)
    assert not engine.requests and not engine.schedule().scheduled


def test_the_queue_is_bounded_and_an_id_is_in_use_once() -> None:
    engine = scheduler(max_queue=2)
    for name in "AB":
        engine.add(request(name, 4))
    with pytest.raises(NeverFits, match="a request with id A is in progress"):
        engine.add(request("A", 4))
    with pytest.raises(QueueFull, match="2 of 2 waiting"):
        engine.add(request("C", 4))
    run_step(engine)
    engine.add(request("C", 4))
    with pytest.raises(NeverFits, match="in progress"):
        engine.add(request("A", 4))
    steps_to_the_end(engine)
    engine.add(request("A", 4))


def test_an_abort_gives_all_blocks_back(parts: Any) -> None:
    engine = scheduler(parts, num_blocks=10, max_num_seqs=2)
    for name in "ABC":
        engine.add(request(name, 40))
    run_step(engine)
    for name in ("A", "C", "A", "nobody"):
        engine.abort(name)
    pool = engine.manager.pool
    held = {block for one in engine.running for block in one.block_ids}
    assert pool.used == len(held), f"{pool.used - len(held)} blocks are in use, and nobody has them"
    assert [one.request_id for one in engine.running] == ["B"] and not engine.waiting
    steps_to_the_end(engine)
    assert pool.free + pool.cached == 10


def test_an_abort_reaches_a_request_in_any_state() -> None:
    engine = three_that_outgrow_the_pool()
    while not engine.preemptions:
        run_step(engine)
    engine.abort("C")  # preempted
    engine.abort("E")  # waiting
    step = engine.schedule()
    engine.abort("A")  # in the middle of a step
    outputs = engine.update(step, outcomes(step))
    assert "A" not in [output.request_id for output in outputs]
    check_pool(engine)
    assert {name[0] for step in steps_to_the_end(engine) for name in step.split()} == {"B", "D"}


def test_the_stop_token_ends_a_request_unless_it_is_to_be_ignored() -> None:
    engine = scheduler()
    engine.add(request("A", 4, max_tokens=3))
    engine.add(request("B", 4, max_tokens=3, ignore_eos=True))
    _, outputs = run_step(engine, lambda _: STOP)
    assert [(output.token_ids, output.finish_reason) for output in outputs] == [([STOP], "stop"), ([STOP], None)]
    assert steps_to_the_end(engine) == ["B1", "B1"]


def test_a_failure_ends_its_own_request_only() -> None:
    engine = scheduler()
    for name in "AB":
        engine.add(request(name, 20))
    step = engine.schedule()
    ok, _ = outcomes(step)
    outputs = engine.update(step, [stage.step.Failed("boom"), ok])
    assert [(o.request_id, o.finish_reason, o.error) for o in outputs] == [("A", "error", "boom"), ("B", None, None)]
    check_pool(engine)
    assert steps_to_the_end(engine) == ["B1"] * 7


def test_the_first_output_tells_what_a_prefix_hit_spared() -> None:
    engine = scheduler()
    prompt = list(range(100, 140))
    told = []
    for name in "AB":
        engine.add(request(name, prompt, max_tokens=2))
        while engine.requests:
            told += [output.cached_tokens for output in run_step(engine)[1]]
    assert told == [0, 0, 32, 0]


def test_a_step_costs_what_runs_and_not_what_waits() -> None:
    def calls(waiting: int) -> int:
        engine = scheduler(num_blocks=40, max_queue=100_000)
        for place in range(waiting):
            engine.add(request(str(place), 6))
        run_step(engine)
        count = 0

        def tick(*_: Any) -> None:
            nonlocal count
            count += 1

        sys.setprofile(tick)
        try:
            step = engine.schedule()
        finally:
            sys.setprofile(None)
        engine.abort(str(waiting - 1))
        assert len(step.scheduled) == 4
        return count

    assert calls(10) == calls(3000)
