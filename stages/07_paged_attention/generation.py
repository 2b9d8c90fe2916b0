"""07.1 What a caller wants, and what it waits for. Knows no engine; a generation belongs to one event loop."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from .errors import QueueFull, Refused, ServingError, WorkerFailed
from .messages import Output, SamplingParams
from .output_handler import Choice, Delta

Prompt = str | list[int]


class Aborted(ServingError):
    """The request was taken out because nobody waits for it."""

    status = 499


@dataclass(frozen=True)
class Wish:
    """What a caller wants of each prompt. `sampling.max_tokens` 0 is as many as fit; `seed` None draws one."""

    sampling: SamplingParams
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()


@dataclass(eq=False)
class Generation:
    """What one caller waits for: all choices of all its prompts, and what has come of them."""

    request_id: str
    choices: list[Choice]
    arrived: float
    over: bool = False
    unfinished: int = 0
    deltas: "asyncio.Queue[Delta | ServingError]" = field(default_factory=asyncio.Queue)

    def usage(self) -> dict[str, Any]:
        """The tokens so far, as OpenAI counts them: a prompt once, however many choices it has."""
        prompts = {id(choice.prompt_ids): choice for choice in self.choices}.values()
        prompt, completion = sum(len(c.prompt_ids) for c in prompts), sum(c.tokens for c in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(c.cached_tokens for c in prompts)},
        }


def failure_of(output: Output) -> ServingError:
    """The error that stands for a core's answer."""
    kinds = {"invalid": Refused, "full": QueueFull}
    retry = 1 if output.error_kind == "full" else None
    return kinds.get(output.error_kind, WorkerFailed)(output.error or "the step failed", retry_after=retry)
