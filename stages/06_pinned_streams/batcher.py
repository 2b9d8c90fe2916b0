"""Decides which inputs share the next pass of one model, and when. Pure: no thread, no clock, no model.

Two triggers: a batch is full, or its oldest input has waited long enough. The second one is what keeps a quiet model
from starving its one user. Time comes in as an argument, in seconds.
"""

from collections.abc import Hashable
from typing import Any, Protocol

from .errors import QueueFull


class Parked(Protocol):
    """What waits here. Whatever is true of `arrived` was written by `submit`."""

    shape: Hashable
    arrived: float

    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        ...


class DynamicBatcher:
    """At most `max_queue` inputs wait, each for at most `max_delay_ms`, for a pass of at most `max_batch`."""

    def __init__(self, max_batch: int, max_delay_ms: float, max_queue: int) -> None:
        self.max_batch = max_batch
        self.max_delay = max_delay_ms / 1000
        self.max_queue = max_queue
        self.waiting: list[Any] = []

    def submit(self, item: Parked, now: float) -> None:
        """Park an input. Raises `QueueFull`."""
        if not self.has_room():
            raise QueueFull(f"the queue is full ({len(self.waiting)} of {self.max_queue} waiting)")
        item.arrived = now
        self.waiting.append(item)

    def tick(self, now: float) -> list[list[Any]]:
        """The batches to run now, oldest first. What was cancelled is in none of them."""
        self.waiting = [item for item in self.waiting if not item.cancelled()]
        batches: list[list[Any]] = []
        for group in self.groups():
            while len(group) >= self.max_batch or (group and now >= self.deadline(group)):
                batches.append(group[: self.max_batch])
                group = group[self.max_batch :]
        self.forget(batches)
        return batches

    def flush(self) -> list[list[Any]]:
        """Everything that waits, in batches, without waiting for more."""
        return self.tick(float("inf"))

    def next_deadline(self) -> float | None:
        """When `tick` has to be called next, unless somebody arrives before; None if nothing waits."""
        return min((self.deadline(group) for group in self.groups()), default=None)

    def deadline(self, group: list[Any]) -> float:
        """When a group has waited long enough."""
        return group[0].arrived + self.max_delay

    def groups(self) -> list[list[Any]]:
        """Who may share a pass: rows of the same shape, in order of arrival."""
        shapes = dict.fromkeys(item.shape for item in self.waiting)
        return [[item for item in self.waiting if item.shape == shape] for shape in shapes]

    def has_room(self) -> bool:
        """Whether one more may wait."""
        return len(self.waiting) < self.max_queue

    def forget(self, batches: list[list[Any]]) -> None:
        """These wait no longer."""
        taken = {id(item) for batch in batches for item in batch}
        self.waiting = [item for item in self.waiting if id(item) not in taken]
