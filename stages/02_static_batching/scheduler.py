"""Decides which sequences share the next pass. Pure: no thread, no clock, no model.

The batch is a standing one that is topped up between passes, not built anew: while there is room and somebody
waits, admit. With a model call that returns only when its last row is done, everybody leaves at once, so the room is
always the whole batch; stage 03 changes just that.
"""

from collections import deque

from .errors import QueueFull
from .sequence import Sequence


class Scheduler:
    """First come, first served, into a batch of at most `batch_size`; at most `max_queue` wait."""

    def __init__(self, batch_size: int, max_queue: int) -> None:
        self.batch_size = batch_size
        self.max_queue = max_queue
        self.waiting: deque[Sequence] = deque()
        self.active: list[Sequence] = []

    def add(self, sequences: list[Sequence]) -> None:
        """Queue the sequences of one request, all of them or none. Raises `QueueFull`."""
        if not self.has_room(len(sequences)):
            raise QueueFull(f"the queue is full ({len(self.waiting)} of {self.max_queue} waiting)")
        self.waiting.extend(sequences)

    def has_room(self, count: int) -> bool:
        """Whether `count` more may wait."""
        return len(self.waiting) + count <= self.max_queue

    def schedule(self) -> list[Sequence]:
        """Top up the batch and return it. The list is the caller's own."""
        while self.waiting and len(self.active) < self.batch_size:
            self.active.append(self.waiting.popleft())
        return list(self.active)

    def finish(self, sequence: Sequence) -> None:
        """A sequence has its answer; its place in the batch is free."""
        self.active.remove(sequence)

    def drop(self, sequence: Sequence) -> None:
        """A caller has gone: if its sequence still waits, it never costs a pass."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
