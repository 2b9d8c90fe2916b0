"""07.2 Which engine core gets a request. Pure: knows numbers, no sockets and no requests.

A waiting request weighs four times a running one: who runs shares each step with the others, who waits holds up
everybody behind it. Cores report their load after each step; what was sent since then is not in the report yet,
so it is counted here, as waiting. Without that, a burst between two reports would all go to one core.
"""

from dataclasses import dataclass

WAITING_WEIGHT = 4


@dataclass
class Load:
    """What is known of one core."""

    ready: bool = False
    waiting: int = 0
    running: int = 0
    sent: int = 0
    """requests sent since the last report"""

    @property
    def score(self) -> int:
        """The lower, the sooner a request would get its turn."""
        return WAITING_WEIGHT * (self.waiting + self.sent) + self.running


class Router:
    """Places requests on `cores` cores, on each of which `max_queue` may wait."""

    def __init__(self, cores: int, max_queue: int) -> None:
        self.loads = [Load() for _ in range(cores)]
        self.max_queue = max_queue

    @property
    def capacity(self) -> int:
        """How many requests may wait when all cores are ready."""
        return self.max_queue * len(self.loads)

    def room(self) -> int:
        """How many requests may still be sent."""
        return sum(max(0, self.max_queue - load.waiting - load.sent) for load in self.loads if load.ready)

    def place(self) -> int:
        """The core for one more request: of those that are ready and have room, the least loaded. Needs `room`."""
        open_to = [n for n, load in enumerate(self.loads) if load.ready and load.waiting + load.sent < self.max_queue]
        core = min(open_to, key=lambda n: self.loads[n].score)
        self.loads[core].sent += 1
        return core

    def report(self, core: int, waiting: int, running: int) -> None:
        """A core said how many requests it has."""
        self.loads[core] = Load(True, waiting, running)

    def lost(self, core: int) -> None:
        """A core takes no requests until it reports again."""
        self.loads[core] = Load()
