"""The unit of work inside an engine core: one request, what it has so far, and which blocks are its own.

Plain state, changed by the scheduler and the KV cache manager alone. Knows no tensors.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from .messages import Add, SamplingParams


class Status(Enum):
    """Where a request is. One that was preempted is waiting again."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(eq=False)
class Request:
    """One prompt on its way to an answer."""

    request_id: str
    token_ids: list[int]
    """the prompt, and then the answer as it grows"""
    num_prompt_tokens: int
    sampling: SamplingParams
    arrived: float
    status: Status = Status.WAITING
    num_computed_tokens: int = 0
    """tokens whose keys and values are in the cache; the next step computes from here on"""
    num_cached_tokens: int = 0
    """prompt tokens that a prefix hit spared when the request first ran"""
    num_preemptions: int = 0
    block_ids: list[int] = field(default_factory=list)
    """the block table: entry i holds tokens i * block_size up to the next block's first"""
    block_hashes: list[bytes] = field(default_factory=list)
    """one for each full block of `token_ids`, as far as they have been needed"""

    @classmethod
    def of(cls, add: Add) -> "Request":
        """A new one, as the API server sent it."""
        return cls(add.request_id, list(add.prompt_token_ids), len(add.prompt_token_ids), add.sampling, add.arrived)

    @property
    def num_tokens(self) -> int:
        """Tokens known: the prompt's and the answer's."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens of the answer so far, which is also the place of the next one in it."""
        return len(self.token_ids) - self.num_prompt_tokens
