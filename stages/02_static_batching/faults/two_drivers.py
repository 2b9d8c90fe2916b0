"""Every arrival brings a driver of its own.

Each driver runs schedule, pass, deliver until nobody is left, and nothing keeps them apart. Two requests at once are
two drivers of one scheduler: both are handed the same batch, and both run it. The second finds it delivered.

A user sees: nothing wrong but the time. The model does the same work twice, more often the more users there are.

Seen in the wild: vLLM's `LLM.generate` drives its engine step by step until its own requests are done. Called from the
threads of a gRPC server, it fails in its bookkeeping with a KeyError (vLLM issue 1285); so does ExLlamaV2's generator
in three threads (exllamav2 issue 690). Engines have exactly one loop that schedules.
"""

import threading

from ..engine import Engine
from ..parts import Parts

TEST = "tests/stage_02/test_engine.py::test_each_sequence_runs_once"
MESSAGE = "a sequence was run twice"


class EverybodyDrives(Engine):
    def drive(self) -> None:
        drivers: list[threading.Thread] = []
        with self.changed:
            while not self.closing:
                drivers.append(threading.Thread(target=self.drive_until_idle, daemon=True))
                drivers[-1].start()
                self.changed.wait()  # until somebody comes: one more driver
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
                with self.changed:  # whoever comes second delivers nothing
                    if sequence in self.scheduler.active:
                        self.deliver(sequence, result)


PARTS = Parts(engine=EverybodyDrives)
