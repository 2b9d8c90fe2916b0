"""Keys and values live in the pool and nowhere else, and a request reads what its block table says."""

from typing import Any

import pytest
import torch

from tests.stage_07.core import BLOCK
from tests.stage_07.engines import Engine, check_greedy

PROMPTS = [list(range(20, 60)), [7, 8, 9], list(range(100, 133))]


def spoil(garbage: float) -> Any:
    """Before each step, overwrite every slot of the pool that holds no token of a request in it."""

    def before(rows: list[Any], runner: Any) -> None:
        owned = [row.block_ids[p // BLOCK] * BLOCK + p % BLOCK for row in rows for p in range(row.position)]
        for cache in runner.caches:
            for slots in (cache[0].flatten(0, 1), cache[1].flatten(0, 1)):
                kept = slots[owned].clone()
                slots.fill_(garbage)
                slots[owned] = kept

    return before


@pytest.mark.parametrize("garbage", [1e4, float("nan")])
@pytest.mark.parametrize("name", ["opt", "llama"])
def test_garbage_in_every_slot_that_nobody_owns_changes_nothing(name: str, garbage: float) -> None:
    engine = Engine(name, before=spoil(garbage), enable_prefix_caching=False, max_num_batched_tokens=24)
    for place, prompt in enumerate(PROMPTS):
        engine.ask(str(place), prompt, 30, ignore_eos=name == "opt")
        engine.steps(2)
    for place, ids in enumerate(engine.finish().values()):
        if name == "llama":
            check_greedy(name, PROMPTS[place], ids, 30)
    clean = Engine(name, enable_prefix_caching=False)
    for place, prompt in enumerate(PROMPTS):
        clean.ask(str(place), prompt, 30, ignore_eos=name == "opt")
    assert clean.finish() == engine.answers


def test_two_blocks_that_change_places_without_their_tables_change_the_answers() -> None:
    """Blocks of two requests. (Two full ones of a single request could change places: attention is a sum, and a key
    carries its position.)"""

    def answers(swap: bool, tell_the_tables: bool) -> dict[str, list[int]]:
        engine = Engine("llama")
        engine.ask("A", PROMPTS[0], 20, ignore_eos=True)
        engine.ask("B", PROMPTS[2], 20, ignore_eos=True)
        engine.steps(1)
        if swap:
            one, other = engine.core.scheduler.running
            first, second = one.block_ids[0], other.block_ids[0]
            for cache in engine.worker.runner.caches:
                cache[:, [first, second]] = cache[:, [second, first]]
            if tell_the_tables:
                one.block_ids[0], other.block_ids[0] = second, first
        return engine.finish()

    right = answers(swap=False, tell_the_tables=False)
    assert answers(swap=True, tell_the_tables=True) == right
    wrong = answers(swap=True, tell_the_tables=False)
    assert wrong["A"] != right["A"] and wrong["B"] != right["B"]


def test_the_pool_is_all_there_is_to_remember() -> None:
    """A request goes on in another engine that was given nothing but the pool's content and the request."""
    engine, other = Engine("llama"), Engine("llama")
    engine.ask("A", PROMPTS[0], 20, ignore_eos=True)
    engine.steps(8)
    [running] = engine.core.scheduler.running
    known, block_ids, done = list(running.token_ids), list(running.block_ids), running.num_computed_tokens
    for source, target in zip(engine.worker.runner.caches, other.worker.runner.caches, strict=True):
        assert source.shape == (2, 65, BLOCK, 2, 16)
        target.copy_(source)
    right = engine.finish()["A"]
    other.ask("A", known, 20 - (len(known) - 40), ignore_eos=True)
    [moved] = other.core.scheduler.waiting.values()
    admit = other.core.scheduler.manager.admit

    def as_before(request: Any, headroom: int) -> bool:
        assert admit(request, headroom)
        assert request.block_ids == block_ids
        request.num_computed_tokens = done
        return True

    other.core.scheduler.manager.admit = as_before
    assert known[40:] + other.finish()["A"] == right
    assert moved.num_output_tokens < 20
    assert other.core.work["positions_computed"] == 20 - (len(known) - 40), "the prompt was computed again"


def test_no_token_is_computed_twice() -> None:
    engine = Engine("llama")
    engine.ask("A", PROMPTS[0], 20, ignore_eos=True)
    engine.finish()
    assert engine.core.work["positions_computed"] == 40 + 19
    assert all(isinstance(cache, torch.Tensor) and not cache.requires_grad for cache in engine.worker.runner.caches)
