"""The block pool and the KV cache manager alone: pure. The numbers are those of the request that the stage follows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stage_07.core import BLOCK, manager, request, stage


def computed(manager: Any, name: str, prompt: list[int], headroom: int = 0) -> Any:
    """A request whose prompt has been computed."""
    one = request(name, prompt)
    assert manager.admit(one, headroom)
    since, one.num_computed_tokens = one.num_computed_tokens, one.num_tokens
    manager.remember(one, since)
    return one


def test_17_tokens_need_two_blocks_and_16_need_one(parts: Any) -> None:
    kv = manager(parts)
    one, other = request("A", 17), request("B", 16)
    assert kv.admit(one, 0) and kv.admit(other, 0)
    assert len(one.block_ids) == 2, f"17 tokens need 2 blocks, not {len(one.block_ids)}"
    assert len(other.block_ids) == 1, f"16 tokens need 1 block, not {len(other.block_ids)}"


def test_every_16th_token_takes_one_more_block() -> None:
    kv = manager()
    one = request("A", 17)
    assert kv.admit(one, 0)
    sizes = []
    for tokens in range(18, 66):
        assert kv.grow(one, tokens)
        sizes.append(len(one.block_ids))
    assert [
        tokens for tokens, size, before in zip(range(18, 66), sizes, [2, *sizes], strict=False) if size > before
    ] == [
        33,
        49,
        65,
    ]


def test_blocks_that_come_back_serve_another_and_are_given_all_or_none() -> None:
    kv = manager(num_blocks=3, caching=False)
    first, second = request("A", 40), request("B", 17)
    assert kv.admit(first, 0)
    assert not kv.admit(second, 0)
    assert not second.block_ids and kv.pool.used == 3
    assert not kv.grow(first, 49)
    assert len(first.block_ids) == 3
    blocks = list(first.block_ids)
    kv.free(first)
    assert kv.pool.free == 3
    assert kv.admit(second, 0)
    assert set(second.block_ids) < set(blocks)


def test_a_block_is_found_only_after_the_same_beginning(parts: Any) -> None:
    kv = manager(parts, num_blocks=20)
    p, q, r, s = ([token] * BLOCK for token in (101, 102, 103, 104))
    computed(kv, "A", [*p, *q, 5])
    computed(kv, "B", [*r, *s, 5])
    moved, mixed = request("C", [*q, *p, 5]), request("D", [*p, *s, 5])
    assert kv.admit(moved, 0) and kv.admit(mixed, 0)
    assert moved.num_computed_tokens == 0, "found a block that was computed after another beginning"
    assert mixed.num_computed_tokens == BLOCK, "found a block that was computed after another beginning"


def test_a_prefix_is_shared_and_counted() -> None:
    kv = manager()
    prompt = list(range(100, 140))
    first = computed(kv, "A", prompt)
    second = request("B", [*prompt[:33], 7, 8, 9])
    assert kv.admit(second, 0)
    assert second.block_ids[:2] == first.block_ids[:2] and second.block_ids[2] != first.block_ids[2]
    assert second.num_computed_tokens == second.num_cached_tokens == 32
    assert (kv.prefix_queries, kv.prefix_hits) == (40 + 36, 32)
    assert (kv.pool.used, kv.pool.free, kv.pool.cached) == (4, 6, 0)
    kv.free(first)
    assert (kv.pool.used, kv.pool.free, kv.pool.cached) == (3, 7, 0)
    kv.free(second)
    assert (kv.pool.used, kv.pool.free, kv.pool.cached) == (0, 8, 2)


def test_a_prompt_that_is_cached_whole_still_computes_its_last_block() -> None:
    """There is no logit without a computed token, so hits are capped at all tokens but one."""
    kv = manager()
    prompt = list(range(100, 132))
    computed(kv, "A", prompt)
    again = request("B", prompt)
    assert kv.admit(again, 0)
    assert again.num_computed_tokens == 16
    longer = request("C", [*prompt, 5])
    assert kv.admit(longer, 0)
    assert longer.num_computed_tokens == 32


def test_nothing_is_shared_before_it_is_computed() -> None:
    kv = manager()
    prompt = list(range(100, 140))
    first, second = request("A", prompt), request("B", prompt)
    assert kv.admit(first, 0) and kv.admit(second, 0)
    assert second.num_computed_tokens == 0
    assert not set(first.block_ids) & set(second.block_ids)
    for one in (first, second):
        one.num_computed_tokens = 40
        kv.remember(one, 0)
        kv.free(one)
    assert (kv.pool.free, kv.pool.cached) == (8, 2), "of two blocks with one content, one is worth keeping"


def test_free_blocks_go_first_then_the_least_recently_used_and_tails_before_heads() -> None:
    kv = manager(num_blocks=5)
    old, new = list(range(100, 132)), list(range(200, 232))
    for name, prompt in (("A", old), ("B", new)):
        kv.free(computed(kv, name, prompt))
    again = computed(kv, "C", [*old, 5])  # both of A's blocks are used again, and its third is new
    assert again.num_cached_tokens == 32
    kv.free(again)
    assert (kv.pool.free, kv.pool.cached) == (1, 4)
    kv.free(computed(kv, "D", list(range(300, 320))))  # 2 blocks: the free one, and the tail of B
    assert [len(kv.cached_prefix(request("E", [*prompt, 5]))) for prompt in (old, new)] == [2, 1]


def test_without_prefix_caching_nothing_is_kept() -> None:
    kv = manager(caching=False)
    prompt = list(range(100, 140))
    kv.free(computed(kv, "A", prompt))
    again = computed(kv, "B", prompt)
    assert again.num_cached_tokens == kv.prefix_queries == kv.prefix_hits == kv.pool.cached == 0


def test_hits_that_nobody_uses_are_not_counted_as_room_as_well() -> None:
    """Three blocks, all cached: a prompt that hits two and needs two more does not fit, though three are available."""
    kv = manager(num_blocks=3)
    prompt = list(range(100, 148))
    kv.free(computed(kv, "A", prompt))
    assert kv.pool.cached == kv.pool.available == 3
    assert not kv.admit(request("B", [*prompt[:32], *range(500, 520)]), 0)
    assert kv.pool.cached == 3


def test_a_block_cannot_be_given_back_twice() -> None:
    pool = stage.block_pool.BlockPool(2)
    block = pool.pop()
    pool.release(block)
    with pytest.raises(ValueError, match=f"block {block} is given back, but nobody has it"):
        pool.release(block)
    assert {pool.pop(), pool.pop()} == {1, 2}
    with pytest.raises(IndexError, match="all 2 blocks are in use"):
        pool.pop()


def test_block_0_is_never_handed_out() -> None:
    pool = stage.block_pool.BlockPool(3)
    assert {pool.pop() for _ in range(3)} == {1, 2, 3}


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 3), st.integers(1, 60)), max_size=30))
def test_a_hit_is_always_the_same_text_from_the_beginning(moves: list[tuple[str, int, int]]) -> None:
    """A model of the pool: what was last computed into each block, with all that came before it."""
    kv = manager(num_blocks=7)
    holds: dict[int, list[int]] = {}
    for kind, variant, length in moves:
        prompt = ([7] * 20 if kind == "A" else [8] * 33) + [variant] * length
        one = request(kind, prompt)
        if not kv.admit(one, 0):
            continue
        hits = one.num_computed_tokens // BLOCK
        for place, block in enumerate(one.block_ids):
            until = prompt[: (place + 1) * BLOCK]
            if place < hits:
                assert holds[block] == until
            holds[block] = until
        one.num_computed_tokens = one.num_tokens
        kv.remember(one, hits * BLOCK)
        kv.free(one)
        assert kv.pool.used == 0 and kv.pool.free + kv.pool.cached == 7


@pytest.mark.parametrize(("blocks", "tokens"), [(33_298, 532_768)])
def test_the_blocks_of_a_pool_are_its_tokens(blocks: int, tokens: int) -> None:
    assert stage.block_pool.BlockPool(blocks).free * BLOCK == tokens
