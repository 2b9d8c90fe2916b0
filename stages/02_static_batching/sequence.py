"""The unit of work that every part hands on: what a caller wants, and what came of it.

Pure data, so that a sequence may cross a process boundary. It holds no queue, no future and no event loop.
"""

from dataclasses import dataclass, field
from uuid import uuid4


@dataclass
class Sequence:
    """One prompt on its way through the server."""

    prompt: str
    max_new_tokens: int
    ignore_eos: bool = False
    request_id: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True)
class Completion:
    """The model's continuation of one prompt, without the prompt and without the stop token."""

    text: str
    tokens: int


@dataclass(frozen=True)
class Refusal:
    """Why this one prompt cannot be served; the fault is the caller's, so it becomes a 422."""

    message: str
