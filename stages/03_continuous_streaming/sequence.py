"""The unit of work, in two shapes: what stays in the web process, and what crosses the pipe.

A sequence carries its return address, a mailbox that belongs to one event loop. A copy of that in another process
would mean nothing, so only a `Row` of plain data crosses: send data, never handles.
"""

from dataclasses import dataclass, field
from uuid import uuid4

from .mailbox import Mailbox


@dataclass(frozen=True)
class Sampling:
    """How a caller wants its tokens chosen. `temperature` 0 is greedy."""

    max_new_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool = False


@dataclass(frozen=True)
class Row:
    """What one step needs of one sequence: all its token ids, and how to choose the next one."""

    request_id: str
    ids: list[int]
    new: int
    """how many of `ids`, the last ones, were generated"""
    sampling: Sampling


@dataclass(frozen=True)
class Token:
    """What one step did for one sequence."""

    id: int
    stop: bool
    """whether it is a stop token"""


@dataclass(eq=False)
class Sequence:
    """One prompt on its way through the server."""

    name: str
    """what the caller calls it: "prompt" or "prompts[3]" """
    prompt_ids: list[int]
    sampling: Sampling
    mailbox: Mailbox
    arrived: float
    output_ids: list[int] = field(default_factory=list)
    request_id: str = field(default_factory=lambda: uuid4().hex)

    def row(self) -> Row:
        """The part of this sequence that may cross a process boundary."""
        return Row(self.request_id, [*self.prompt_ids, *self.output_ids], len(self.output_ids), self.sampling)

    def remaining(self) -> int:
        """Tokens until its limit."""
        return self.sampling.max_new_tokens - len(self.output_ids)
