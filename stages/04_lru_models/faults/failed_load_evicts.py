"""A model that cannot be loaded pushes out one that could.

Room is made first, and only then does it turn out that a file is missing or that no such framework exists.

A user sees: one broken registry line, asked for again and again, empties the server of the models that work.

Seen in the wild: Ray Serve's model multiplexing evicts the least recently used model before it calls the user's
loader, which may raise.
"""

from ..errors import LoadFailed
from ..lru import Entry, State
from ..parts import Parts
from ..registry import Metadata
from ..residency import Residency
from ..worker import Worker

TEST = "tests/stage_04/test_residency.py::test_a_model_that_cannot_load_evicts_nobody"
MESSAGE = "a model that cannot load pushed out one that could"


class FindsOutTooLate(Residency):
    async def validate(self, metadata: Metadata) -> Worker:
        if metadata.framework not in self.workers:
            raise LoadFailed(f"{metadata.name} cannot be loaded: no framework {metadata.framework!r}")
        return self.workers[metadata.framework](metadata, self.device)


class LoadsFirst(FindsOutTooLate):
    async def load(self, entry: Entry, worker: Worker, request_id: str) -> None:
        self.policy.slots += 1
        await super().load(entry, worker, request_id)
        self.policy.slots -= 1

    async def evict(self, entry: Entry) -> None:
        entries = self.policy.entries
        await self.until(lambda: all(other.state is not State.LOADING for other in entries.values()))
        if len(entries) > self.policy.slots:
            await super().evict(entry)
        else:
            entry.state = State.READY
            self.changed()


PARTS = Parts(residency=FindsOutTooLate)


class LoadFirst:
    """Tempting: load before evicting. Nothing is lost when the load fails, but it takes a third slot, and that is what
    the box does not have."""

    PARTS = Parts(residency=LoadsFirst)
    TEST = "tests/stage_04/test_residency.py::test_never_more_models_in_memory_than_slots"
    MESSAGE = "more models in memory than there are slots"


NAIVE_FIXES = {"load_first": LoadFirst}
