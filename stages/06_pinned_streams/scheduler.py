"""Decides which sequences take part in the next step. Pure: no thread, no clock, no model.

The batch is derived anew at every step, and a step is one token. Who finished has left, who waits may join: that is
all there is to continuous batching.
"""

from collections import deque

from .errors import QueueFull
from .sequence import Sequence, Token


class Scheduler:
    """First come, first served, into a running batch of at most `batch_size`; at most `max_queue` wait."""

    def __init__(self, batch_size: int, max_queue: int) -> None:
        self.batch_size = batch_size
        self.max_queue = max_queue
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequences: list[Sequence]) -> None:
        """Queue the sequences of one request, all of them or none. Raises `QueueFull`."""
        if len(self.waiting) + len(sequences) > self.max_queue:
            raise QueueFull(f"the queue is full ({len(self.waiting)} of {self.max_queue} waiting)")
        self.waiting.extend(sequences)

    def schedule(self) -> list[Sequence]:
        """Admit while there is room, and return the batch of the next step. The list is the caller's own."""
        while self.waiting and len(self.running) < self.batch_size:
            self.running.append(self.waiting.popleft())
        return list(self.running)

    def update(self, sequence: Sequence, token: Token) -> str | None:
        """Give a running sequence its token. Returns "stop" or "length" if that was its last; its slot is free then."""
        sequence.output_ids.append(token.id)
        reason = None
        if token.stop and not sequence.sampling.ignore_eos:
            reason = "stop"
        elif self.is_full(sequence):
            reason = "length"
        if reason:
            self.remove(sequence)
        return reason

    def is_full(self, sequence: Sequence) -> bool:
        """Whether a sequence has all the tokens it may have."""
        return len(sequence.output_ids) >= sequence.sampling.max_new_tokens

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence wherever it is, queued or running; if it is neither, that is fine too."""
        for place in (self.waiting, self.running):
            if sequence in place:
                place.remove(sequence)

    def steps_ahead(self) -> float:
        """About how many steps until all who are here have their tokens, if none stops early."""
        remaining = [sequence.remaining() for sequence in [*self.waiting, *self.running]]
        return max([sum(remaining) / self.batch_size, *remaining])
