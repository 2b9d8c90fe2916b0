"""Workers that follow a script and keep a ledger of who is in memory; gates hold them where a test wants them.

For the stages that keep many models in the web process; each has its own subclass of `Script`, with its own stage.
"""

import asyncio
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, ClassVar

from tests.serving import Stage

SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[1]


class Held:
    """A place where a worker waits: `reached` when it is there, until `open`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.open.wait(SECONDS), "the test never opened this gate"


class Script:
    """What happened to the scripted workers, and where to hold them.

    A model named "unusable..." fails its check, "broken..." fails to load; an input "raise" raises.
    """

    stage: ClassVar[Stage]

    def __init__(self) -> None:
        self.gates: dict[str, Held] = {}
        self.events: list[str] = []
        self.in_memory: Counter[str] = Counter()
        self.most = 0
        self.serial: dict[str, int] = defaultdict(int)
        self.asked_when_freed: list[str] = []
        self._lock = threading.Lock()
        self.worker: Any = type("Worker", (Scripted, self.stage.worker.Worker), {"script": self})

    def hold(self, what: str) -> Held:
        """Hold whoever does this next, such as "load a" or "predict a"."""
        self.gates[what] = Held()
        return self.gates[what]

    def happens(self, what: str, name: str) -> None:
        with self._lock:
            self.events.append(f"{what} {name}")
            if what == "load":
                self.in_memory[name] += 1
                self.most = max(self.most, self.in_memory.total())
            if what == "free" and self.in_memory[name]:
                self.in_memory[name] -= 1
        if gate := self.gates.get(f"{what} {name}"):
            gate.pass_through()


class Scripted:
    """The five methods of a worker; a stage's own base class comes behind it."""

    script: Script
    metadata: Any
    model: Any = None
    failed: Any
    number = 0

    def check(self) -> None:
        self.script.happens("check", self.metadata.name)
        if self.metadata.name.startswith("unusable"):
            raise self.failed("scripted trouble")

    def load(self) -> None:
        name = self.metadata.name
        self.script.happens("load", name)
        if name.startswith("broken"):
            raise RuntimeError("no room for the weights")
        self.script.serial[name] += 1
        self.number = self.script.serial[name]
        self.model = object()

    def prepare(self, item: Any) -> Any:
        if item == "refuse":
            raise self.script.stage.errors.Refused("scripted refusal")
        return item

    def predict(self, rows: list[Any]) -> list[Any]:
        name = self.metadata.name
        if self.model is None:
            self.script.asked_when_freed.append(name)
        self.script.happens("predict", name)
        if "raise" in rows:
            raise RuntimeError("scripted trouble")
        if "lost" in rows:
            raise self.script.stage.errors.WorkerLost("scripted loss")
        return [self.script.stage.worker.Prediction(f"{name} {self.number}", 1.0) for _ in rows]

    def free(self) -> None:
        self.script.happens("free", self.metadata.name)
        self.model = None

    def size(self) -> int:
        return 1


def metadata(stage: Stage, name: str, framework: str = "scripted", model_id: str | None = None, **more: Any) -> Any:
    """One line of a registry."""
    return stage.registry.Metadata(
        id=model_id or name, name=name, type="any", framework=framework, version="1", description="", **more
    )


def shipped(stage: Stage, name: str, framework: str, **more: Any) -> Any:
    """A model that ships, by its name."""
    return metadata(stage, name, framework, root=ROOT / "models", **more)


async def reached(held: Held) -> None:
    """Wait, without holding up the event loop, until a worker stands at the gate."""
    assert await asyncio.to_thread(held.reached.wait, SECONDS), "nobody came to the gate"
