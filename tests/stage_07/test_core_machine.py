"""Scheduler and manager under anything that can happen to them: nothing leaks, nothing is owned twice, all ends."""

from collections.abc import Set
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.stage_07.core import BLOCK, STOP, check_pool, outcomes, request, scheduler, stage


class Machine(RuleBasedStateMachine):
    """Requests from three families of prompts, so that they share prefixes, on a pool that is too small for them."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Any = scheduler(num_blocks=7, max_num_batched_tokens=24, max_num_seqs=4, max_queue=6)
        self.count = 0
        self.step_number = 0
        self.admitted_at: dict[str, int] = {}
        self.holds: dict[int, tuple[int, ...]] = {}
        self.answers: dict[str, int] = {}
        self.wanted: dict[str, int] = {}

    @rule(family=st.integers(0, 2), length=st.integers(1, 60), max_tokens=st.integers(1, 70), more=st.integers(0, 2))
    def add(self, family: int, length: int, max_tokens: int, more: int) -> None:
        self.count += 1
        name = str(self.count)
        prompt = [10 + family] * length + [20 + more]
        full = len(self.engine.waiting) >= 6
        never = -(-(length + max_tokens) // BLOCK) > 7
        try:
            self.engine.add(request(name, prompt, max_tokens))
            assert not full and not never
            self.wanted[name], self.answers[name] = max_tokens, 0
        except stage.scheduler.QueueFull:
            assert full
        except stage.scheduler.NeverFits:
            assert never

    @precondition(lambda self: self.engine.requests)
    @rule(pick=st.integers(0, 99))
    def abort(self, pick: int) -> None:
        name = list(self.engine.requests)[pick % len(self.engine.requests)]
        self.engine.abort(name)
        self.engine.abort(name)

    @rule(stops=st.sets(st.integers(0, 40), max_size=1), abort_within=st.none() | st.integers(0, 99))
    def step(self, stops: set[int], abort_within: int | None) -> None:
        self.one_step(stops, abort_within)

    def one_step(self, stops: Set[int] = frozenset(), abort_within: int | None = None) -> None:
        engine, self.step_number = self.engine, self.step_number + 1
        waited = list(engine.waiting)
        step = engine.schedule()
        check_pool(engine)
        assert bool(step.scheduled) == bool(engine.requests), "nobody runs, and somebody waits"
        assert sum(count for _, count in step.scheduled) <= 24 and len(engine.running) <= 4
        assert not (step.preempted and step.admitted), "admitted in a step that preempted"
        assert [one.request_id for one in step.admitted] == waited[: len(step.admitted)], "overtaken"
        assert list(engine.waiting)[: len(step.preempted)] == [one.request_id for one in step.preempted[::-1]]
        for one, count in step.scheduled[:-1]:
            assert one.num_computed_tokens + count == one.num_tokens, "only the last may be in the middle of its prompt"
        for one in step.preempted:
            assert self.step_number - self.admitted_at[one.request_id] > BLOCK, "preempted just after it was admitted"
        for one in step.admitted:
            self.admitted_at[one.request_id] = self.step_number
            for place in range(one.num_computed_tokens // BLOCK):
                assert self.holds[one.block_ids[place]] == tuple(one.token_ids[: (place + 1) * BLOCK]), "a false hit"
        for one, count in step.scheduled:
            assert count >= 1
            assert len(one.block_ids) * BLOCK >= one.num_computed_tokens + count
            for place in range(one.num_computed_tokens // BLOCK, (one.num_computed_tokens + count - 1) // BLOCK + 1):
                until = min((place + 1) * BLOCK, one.num_computed_tokens + count)
                self.holds[one.block_ids[place]] = tuple(one.token_ids[:until])
        made = outcomes(step, lambda one: STOP if one.num_tokens in stops else 9)
        if abort_within is not None and engine.requests:
            engine.abort(list(engine.requests)[abort_within % len(engine.requests)])
        for output in engine.update(step, made):
            self.answers[output.request_id] += len(output.token_ids)
            if output.finish_reason == "length":
                assert self.answers[output.request_id] == self.wanted[output.request_id]

    @invariant()
    def pool_is_whole(self) -> None:
        check_pool(self.engine)

    def teardown(self) -> None:
        for _ in range(3000):
            if not self.engine.requests:
                break
            self.one_step()
        assert not self.engine.requests, "it does not end"
        pool = self.engine.manager.pool
        assert pool.used == 0 and pool.free + pool.cached == 7


TestMachine = Machine.TestCase  # shrinking machines this long would take minutes, so what fails is shown as it was
TestMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None, phases=[Phase.generate])
