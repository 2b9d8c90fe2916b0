"""The unit of work of a stream: what was asked, what has come of it, and where it goes.

Nothing here crosses a process boundary, as in stage 03, because the models live in this process.
"""

from dataclasses import dataclass, field
from uuid import uuid4

from .detokenizer import Detokenizer
from .mailbox import Mailbox
from .residency import Pin
from .stop_strings import StopStrings


@dataclass(frozen=True)
class Sampling:
    """How a caller wants its tokens chosen. `temperature` 0 is greedy, `top_p` 1 and `top_k` 0 cut nothing off."""

    max_new_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool = False
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Token:
    """What one step did for one sequence."""

    id: int
    stop: bool
    """whether it is a stop token"""


@dataclass(eq=False)
class Sequence:
    """One prompt on its way through the server. It holds its model by a pin, until its last token."""

    prompt_ids: list[int]
    sampling: Sampling
    mailbox: Mailbox
    detokenizer: Detokenizer
    stop_strings: StopStrings
    pin: Pin
    arrived: float
    output_ids: list[int] = field(default_factory=list)
    request_id: str = field(default_factory=lambda: uuid4().hex)

    def remaining(self) -> int:
        """Tokens until its limit."""
        return self.sampling.max_new_tokens - len(self.output_ids)

    def text_of(self, token_id: int, last: bool) -> tuple[str, bool]:
        """The text that may be sent now, and whether a stop string has been found. What follows one is not text."""
        piece = self.detokenizer.add(token_id) + (self.detokenizer.flush() if last else "")
        text, found = self.stop_strings.add(piece)
        return (text if found or not last else text + self.stop_strings.flush()), found
