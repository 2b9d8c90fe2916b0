"""What tests of the engine core share: small requests, schedulers without a model, a loop that checks the pool."""

import os
from collections.abc import Callable
from typing import Any
from zlib import crc32

from tests.serving import Stage

stage = Stage("07_paged_attention")
resolve = stage.core_parts.resolve
Parts = stage.parts.Parts
Sampled = stage.step.Sampled
BLOCK = 16
EAGER = {"enforce_eager": "FLO_FAST" not in os.environ}
"""for engines of tests, which would spend their time compiling; `make test-fast` has them do that"""
STOP = 1
"""the stop token of scripted models, and of tiny-opt"""


def sampling(max_tokens: int = 8, **options: Any) -> Any:
    return stage.messages.SamplingParams(max_tokens=max_tokens, **{"temperature": 0.0, **options})


def add(name: str, prompt: int | list[int], max_tokens: int = 8, **options: Any) -> Any:
    """An `Add`; a prompt given as a length gets ids that no other name has."""
    ids = [100 + (crc32(name.encode()) + place) % 800 for place in range(prompt)] if isinstance(prompt, int) else prompt
    return stage.messages.Add(name, ids, sampling(max_tokens, **options), arrived=0.0)


def request(name: str, prompt: int | list[int], max_tokens: int = 8, **options: Any) -> Any:
    return stage.request.Request.of(add(name, prompt, max_tokens, **options))


def manager(parts: Any = Parts(), num_blocks: int = 10, caching: bool = True) -> Any:
    pool = resolve(parts.block_pool)(num_blocks)
    return resolve(parts.kv_cache_manager)(pool, BLOCK, caching)


def scheduler(parts: Any = Parts(), num_blocks: int = 10, caching: bool = True, **budgets: Any) -> Any:
    limits = stage.limits.Limits(max_model_len=512, block_size=BLOCK, num_blocks=num_blocks, vocab_size=1000)
    settings = {"max_num_batched_tokens": 64, "max_num_seqs": 4, "max_queue": 8, **budgets}
    stop = frozenset({STOP})
    return resolve(parts.scheduler)(manager(parts, num_blocks, caching), limits, **settings, stop_token_ids=stop)


def names(step: Any) -> str:
    """ "A8 B1": who is in a step, with how many tokens."""
    return " ".join(f"{request.request_id}{count}" for request, count in step.scheduled)


def outcomes(step: Any, token: Callable[[Any], int] = lambda _: 9) -> list[Any]:
    """What a model would answer: a token for each request whose last known token is computed in this step."""
    done = [r.num_computed_tokens + count == r.num_tokens for r, count in step.scheduled]
    return [Sampled(token(r)) if last else None for (r, _), last in zip(step.scheduled, done, strict=True)]


def run_step(scheduler: Any, token: Callable[[Any], int] = lambda _: 9) -> tuple[Any, list[Any]]:
    """One whole step, and the check that no block is lost or owned twice."""
    step = scheduler.schedule()
    check_pool(scheduler)
    outputs = scheduler.update(step, outcomes(step, token))
    check_pool(scheduler)
    return step, outputs


def check_pool(scheduler: Any) -> None:
    """Every block is free, cached or used; those in use are those in tables, counted once for each table."""
    pool = scheduler.manager.pool
    assert pool.free + pool.cached + pool.used == pool.num_blocks
    held = [block for request in scheduler.running for block in request.block_ids]
    assert pool.used == len(set(held)), "blocks are in use, and nobody has them"
    assert all(not request.block_ids for request in scheduler.waiting.values())
    for request in scheduler.running:
        assert len(set(request.block_ids)) == len(request.block_ids)
        full = request.num_computed_tokens // BLOCK
        for block in request.block_ids[full:]:
            assert held.count(block) == 1, "two requests write to one block"
