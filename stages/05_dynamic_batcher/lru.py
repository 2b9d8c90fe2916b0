"""Decides which models stay in memory. Pure: no thread, no clock, no I/O; what a worker is, it does not know.

An ordered dictionary, least recently used first, is the whole policy, if every use moves its model to the end. It is
also the only record of what is resident.
"""

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple


class State(Enum):
    """Where a resident is in its life."""

    LOADING = "loading"
    """has a place, but perhaps no memory yet: that may still be its predecessor's"""
    READY = "ready"
    DRAINING = "draining"
    """takes no new calls; is freed when the last one has ended"""
    GONE = "gone"
    """freed, or never loaded; no longer in the record"""


@dataclass(eq=False)
class Entry:
    """One resident. `worker` and `error` are the driver's: who answers, or why nobody will."""

    model_id: str
    state: State = State.LOADING
    calls: int = 0
    """calls that wait for the load or run"""
    in_memory: bool = False
    worker: Any = None
    error: Any = None


class Decision(NamedTuple):
    """What to do about a request. No entry: wait until something changes, then ask again."""

    entry: Entry | None
    load: bool = False
    victim: Entry | None = None


class Lru:
    """At most `slots` models in memory. A request for a model is decided like this:

    1. READY or LOADING: it is used, and moves to the end. Nobody loads it a second time.
    2. DRAINING: wait until it is gone, then it is a model like any other that is not there.
    3. Not there, and fewer than `slots` are here to stay: load it.
    4. Not there, and no place: the first that is READY has to go, and this one loads when it has gone.
    5. Nobody is READY: wait.

    Who is here to stay: all but DRAINING ones. A load begins only when `may_load` says so.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.entries: OrderedDict[str, Entry] = OrderedDict()

    def request(self, model_id: str) -> Decision:
        """Decide, and count the call. Whoever gets an entry must `release` it."""
        entry = self.entries.get(model_id)
        if entry:
            if entry.state is State.DRAINING:
                return Decision(None)
            self.entries.move_to_end(model_id)
            entry.calls += 1
            return Decision(entry)
        victim = None
        staying = [entry for entry in self.entries.values() if entry.state is not State.DRAINING]
        if len(staying) >= self.slots:
            victim = next((entry for entry in staying if entry.state is State.READY), None)
            if not victim:
                return Decision(None)
            self.retire(victim)
        entry = self.entries[model_id] = Entry(model_id, calls=1)
        return Decision(entry, load=True, victim=victim)

    def may_load(self, entry: Entry) -> bool:
        """Whether there is memory for a LOADING entry now; if so, it is this one's."""
        if sum(other.in_memory for other in self.entries.values()) < self.slots:
            entry.in_memory = True
        return entry.in_memory

    def loaded(self, entry: Entry) -> None:
        """The load has worked."""
        entry.state = State.READY

    def retire(self, entry: Entry) -> None:
        """No new calls for this one; when it has none left, it can be freed."""
        entry.state = State.DRAINING

    def release(self, entry: Entry) -> None:
        """A call has ended."""
        entry.calls -= 1

    def remove(self, entry: Entry) -> None:
        """Its memory is free again, or its load has failed: no trace of it is left."""
        del self.entries[entry.model_id]
        entry.state, entry.in_memory, entry.worker = State.GONE, False, None
