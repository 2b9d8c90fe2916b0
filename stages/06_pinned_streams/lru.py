"""Decides which models stay in memory. Pure: no thread, no clock, no I/O; what a worker is, it does not know.

Stage 05's policy plus one rule: whoever uses a model pins it, and a pinned model does not go. The ordered dictionary,
least recently used first, is still the only record of what is resident.
"""

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from .errors import ServingError


class NoIdleModel(ServingError):
    """Every model in memory is in use, so there is no place for another one."""

    status = 503
    outcome = "refused"


class State(Enum):
    """Where a resident is in its life."""

    LOADING = "loading"
    """has a place, but perhaps no memory yet: that may still be its predecessor's"""
    READY = "ready"
    DRAINING = "draining"
    """takes no new calls; is freed when it has no pins, which is at once unless its worker was lost"""
    GONE = "gone"
    """freed, or never loaded; no longer in the record"""


@dataclass(eq=False)
class Entry:
    """One resident. `worker` and `error` are the driver's: who answers, or why nobody will."""

    model_id: str
    state: State = State.LOADING
    pins: int = 0
    """streams and predictions that were admitted and have not ended: they wait for the load, wait their turn, or run"""
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

    1. READY or LOADING: it is pinned, and moves to the end. Nobody loads it a second time.
    2. DRAINING: wait until it is gone, which is soon, then it is a model like any other that is not there.
    3. Not there, and fewer than `slots` are here to stay: load it. It is pinned before the load begins.
    4. Not there, and no place: the victim is the first that is READY and has no pins. It goes, and this one loads when
       it has gone, pinned like in 3.
    5. Not there, and nobody is idle: refuse, at once. Nobody's sentence is cut short, and nobody waits for its end.

    Who is here to stay: all but DRAINING ones. A load begins only when `may_load` says so. LOADING is never a victim,
    whether or not somebody still waits for it: its memory is about to be taken, and could not be given back now.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.entries: OrderedDict[str, Entry] = OrderedDict()

    def request(self, model_id: str) -> Decision:
        """Decide, and pin. Whoever gets an entry must `unpin` it, once. Raises `NoIdleModel`."""
        entry = self.entries.get(model_id)
        if entry:
            if entry.state is State.DRAINING:
                return Decision(None)
            self.entries.move_to_end(model_id)
            self.pin(entry)
            return Decision(entry, load=False)
        victim = None
        staying = [entry for entry in self.entries.values() if entry.state is not State.DRAINING]
        if len(staying) >= self.slots:
            victim = self.victim(staying)
            if not victim:
                raise NoIdleModel(f"all {len(staying)} models in memory are in use, and there is no place for another")
            self.retire(victim)
        entry = self.entries[model_id] = Entry(model_id)
        self.pin(entry)
        return Decision(entry, load=True, victim=victim)

    def victim(self, staying: list[Entry]) -> Entry | None:
        """Who goes, of those who are here to stay, least recently used first. The new rule is the second condition."""
        return next((entry for entry in staying if entry.state is State.READY and entry.pins == 0), None)

    def may_load(self, entry: Entry) -> bool:
        """Whether there is memory for a LOADING entry now; if so, it is this one's."""
        if sum(other.in_memory for other in self.entries.values()) < self.slots:
            entry.in_memory = True
        return entry.in_memory

    def loaded(self, entry: Entry) -> None:
        """The load has worked."""
        entry.state = State.READY

    def retire(self, entry: Entry) -> None:
        """No new calls for this one; when it has no pins, it can be freed."""
        entry.state = State.DRAINING

    def pin(self, entry: Entry) -> None:
        """One more holds this model."""
        entry.pins += 1

    def unpin(self, entry: Entry) -> None:
        """One of those has ended."""
        entry.pins -= 1

    def remove(self, entry: Entry) -> None:
        """Its memory is free again, or its load has failed: no trace of it is left."""
        del self.entries[entry.model_id]
        entry.state, entry.in_memory, entry.worker = State.GONE, False, None
