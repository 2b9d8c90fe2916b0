"""Which requests can never be served. Pure: the API server asks at the door, the scheduler before it queues.

A request that is let in must be able to finish even if it runs alone, or it would wait forever (vLLM issue 35541).
"""

from dataclasses import dataclass


class NeverFits(Exception):
    """The request could not be served even alone, or its id is in use."""


class QueueFull(Exception):
    """As many requests are waiting as may wait."""


@dataclass(frozen=True)
class Limits:
    """What one engine core can hold; `Ready` tells it."""

    max_model_len: int
    """tokens that a request may have, prompt and answer together"""
    block_size: int
    """tokens a block"""
    num_blocks: int
    """blocks in the pool"""
    vocab_size: int

    def refusal(self, prompt_token_ids: list[int], max_tokens: int) -> str | None:
        """Why a request can never be served, with both numbers; None if it can."""
        prompt, longest = len(prompt_token_ids), len(prompt_token_ids) + max_tokens
        if prompt < 1 or max_tokens < 1:
            return f"a prompt of {prompt} tokens and {max_tokens} new ones: both must be at least 1"
        if longest > self.max_model_len:
            asked = f"{longest} tokens ({prompt} of the prompt, {max_tokens} new ones)"
            return f"{asked} are more than the {self.max_model_len} that a request may have"
        blocks = self.blocks(longest - 1)  # the last token is sent, never cached
        if blocks > self.num_blocks:
            return f"{longest} tokens need {blocks} KV cache blocks, and the pool has {self.num_blocks}"
        if not 0 <= min(prompt_token_ids) <= max(prompt_token_ids) < self.vocab_size:
            strange = next(token for token in prompt_token_ids if not 0 <= token < self.vocab_size)
            return f"token id {strange} is not in the vocabulary of {self.vocab_size}"
        return None

    def blocks(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens`, rounded up."""
        return -(-num_tokens // self.block_size)
