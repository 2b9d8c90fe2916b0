"""Every handler drives the shared loop itself.

Each caller runs schedule, pass, deliver until its own answer is there. Two callers at once are two drivers of one
scheduler: both are handed the same batch, and both run it.

A user sees: nothing wrong but the time. The model does the same work twice, more often the more users there are.

Seen in the wild: a loop that "any request thread may pump" instead of one owner; the reason why engines have
exactly one loop that schedules (vLLM's engine core, SGLang's scheduler process).
"""

import threading

from ..engine import Engine
from ..parts import Parts

TEST = "tests/stage_02/test_engine.py::test_each_sequence_runs_once"
MESSAGE = "a sequence was run twice"


class EverybodyDrives(Engine):
    def drive(self) -> None:
        drivers: list[threading.Thread] = []
        while not self.closing:
            with self.changed:
                self.changed.wait()  # somebody came: one more driver
            drivers.append(threading.Thread(target=self.drive_until_idle, daemon=True))
            drivers[-1].start()
        for driver in drivers:
            driver.join()
        super().drive()

    def drive_until_idle(self) -> None:
        while True:
            with self.changed:
                batch = self.scheduler.schedule()
            if not batch:
                return
            for sequence, result in zip(batch, self.run(batch), strict=True):
                if sequence in self.scheduler.active:
                    self.deliver(sequence, result)


PARTS = Parts(engine=EverybodyDrives)
