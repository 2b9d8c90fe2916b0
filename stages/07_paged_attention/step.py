"""What crosses from the scheduler to the worker and back, once a step: plain data, so that a pipe may lie between."""

from dataclasses import dataclass

from .messages import Logprobs, SamplingParams


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
