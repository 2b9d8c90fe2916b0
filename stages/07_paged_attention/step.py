"""One step: what the scheduler decides, and what crosses to the worker and back.

Rows and results are plain data, so that a pipe may lie between.
"""

from dataclasses import dataclass, field

from .messages import Logprobs, SamplingParams
from .request import Request


@dataclass
class Step:
    """The scheduler's decision."""

    scheduled: list[tuple[Request, int]] = field(default_factory=list)
    """requests, and how many of their tokens are computed"""
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    popped: dict[str, list[int]] = field(default_factory=dict)
    """blocks that requests got for this step, by request id"""


@dataclass(frozen=True)
class Row:
    """One request's part of a step."""

    request_id: str
    token_ids: list[int]
    """the tokens to compute"""
    position: int
    """where the first of them stands in the request"""
    block_ids: list[int]
    """the block table, up to the last of them at least"""
    samples: bool
    """whether the last of them is the last token known, so that the next one is to be sampled"""
    place: int
    """the place in the answer of the token to be sampled"""
    sampling: SamplingParams


@dataclass(frozen=True)
class Sampled:
    """The token chosen for a row."""

    token_id: int
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class Failed:
    """The step raised on this row, alone too."""

    reason: str


@dataclass(frozen=True)
class Result:
    """What came of a step that did not raise."""

    outcomes: list[Sampled | None]
    """one for each row, in order; None where nothing was to be sampled"""
    positions_computed: int
    """positions fed to the model, a captured graph's padding included"""
    seconds: dict[str, float] = field(default_factory=dict)
    """how long which part of the step took: "metadata", "forward", "sample" """
