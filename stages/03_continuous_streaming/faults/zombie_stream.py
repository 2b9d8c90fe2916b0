"""A client that hangs up while it is still queued is served all the same.

Hanging up takes a running sequence out of the batch. One that still waits is not looked for, so later it is admitted
and decoded to its end, for nobody.

A user sees: after a burst of impatient clients the server is busy with ghosts, and everyone real waits behind them.

Seen in the wild: in a fork of the ds4 server, clients that had hung up in the queue kept their place, were admitted,
and made everybody's wait longer, which made more clients hang up (Entrpi/ds4 pull request 3). A change to SGLang spares
requests that are aborted in its waiting queue their prefill (SGLang pull request 6855).
"""

from ..engine import Engine
from ..parts import Parts
from ..scheduler import Scheduler
from ..sequence import Sequence

TEST = "tests/stage_03/test_engine.py::test_who_hangs_up_in_the_queue_is_never_run"
MESSAGE = "a sequence that nobody waits for was run"


class LooksAmongTheRunning(Scheduler):
    def remove(self, sequence: Sequence) -> None:
        if sequence in self.running:
            self.running.remove(sequence)


class ForgetsTheAddress(Engine):
    def abort(self, sequence: Sequence) -> None:
        sequence.mailbox.overflowed = True


PARTS = Parts(scheduler=LooksAmongTheRunning)


class ForgetTheAddress:
    """Tempting: drop the return address, so that nothing is delivered. The scheduler still has the sequence."""

    PARTS = Parts(engine=ForgetsTheAddress)
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"forget_the_address": ForgetTheAddress}
