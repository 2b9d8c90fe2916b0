"""What crosses the sockets between the API server and an engine core: plain data, encoded by msgspec.

Knows no tensors, no sockets and no HTTP. Send data, never handles.
"""

from typing import Any

import msgspec

from .limits import Limits


class SamplingParams(msgspec.Struct, frozen=True):
    """How a request wants its tokens chosen."""

    max_tokens: int
    temperature: float = 1.0
    """0 is greedy"""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off"""
    seed: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    """how many of the likeliest tokens to report beside the chosen one; None reports nothing"""


class Add(msgspec.Struct, tag=True, frozen=True):
    """API server to core: a new request."""

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    arrived: float
    """monotonic time at which the API server received it"""


class Abort(msgspec.Struct, tag=True, frozen=True):
    """API server to core: nobody waits for these any more."""

    request_ids: list[str]


class Logprobs(msgspec.Struct, frozen=True):
    """The log-probability of a chosen token, and of the likeliest ones: ids and values of equal length."""

    chosen: float
    ids: list[int]
    values: list[float]


class Output(msgspec.Struct, frozen=True):
    """Core to API server: what one step did for one request."""

    request_id: str
    token_ids: list[int]
    finish_reason: str | None = None
    """"stop" (its stop token, which is the last id), "length" or "error" """
    error: str | None = None
    error_kind: str = "failed"
    """"invalid" (can never be served, or its id is in use), "full" (too many wait) or "failed" (its step raised)"""
    logprobs: list[Logprobs] | None = None
    cached_tokens: int = 0
    """prompt tokens that a prefix hit spared, told with the first output"""


class CoreStats(msgspec.Struct, frozen=True):
    """A core's gauges and running totals, sent with every batch of outputs."""

    running: int = 0
    waiting: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0
    blocks_used: int = 0
    prefix_queries: int = 0
    """prompt tokens looked up in the prefix cache"""
    prefix_hits: int = 0
    """of those, tokens found"""
    preemptions: int = 0
    work: dict[str, float] = {}
    """totals: steps, forward passes, rows, positions computed, seconds of each phase of a step"""


class Outputs(msgspec.Struct, tag=True, frozen=True):
    """Core to API server: one step's outputs."""

    core: int
    outputs: list[Output]
    stats: CoreStats
    events: list[dict[str, Any]] = []
    """trace events of the core, in the form of `trace.py`"""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """Core to API server, once: the model is loaded and the pool is allocated."""

    core: int
    limits: Limits


class Dead(msgspec.Struct, tag=True, frozen=True):
    """Core to API server, last: why it ends."""

    core: int
    reason: str
    unusable: bool = False
    """whether starting again would not help"""
