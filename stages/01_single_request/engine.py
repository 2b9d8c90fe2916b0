"""What the routes call: turns a prompt into a sequence, counts who waits, and asks the executor.

Knows no tensors and no HTTP. A call to the executor blocks for a whole pass, so it happens on a thread of its own
while the event loop goes on answering others.
"""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .errors import EngineDead, QueueFull, Refused, ServingError
from .executor import Executor
from .sequence import Refusal, Sequence
from .stats import Stats
from .trace import Tracer


class Engine:
    """One for the whole process, built once, before the server listens."""

    def __init__(
        self, executor: Executor, max_queue: int, trace: Tracer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.executor = executor
        self.max_queue = max_queue
        self.trace = trace
        self.clock = clock
        self.stats = Stats(clock())
        self.in_flight = 0
        self.closing = False
        self._threads = ThreadPoolExecutor(max_queue + 1, thread_name_prefix="caller")

    def start(self) -> None:
        """Return once the model is ready. Raises `EngineDead` if it cannot be had."""
        self.executor.start()

    def close(self) -> None:
        """Fail whoever waits, and stop."""
        self.closing = True
        self.executor.close()
        self._threads.shutdown()

    def on_fatal(self, stop: Callable[[], object]) -> None:
        """Have `stop` called when the model is lost for good."""
        self.executor.on_fatal = stop

    @property
    def failure(self) -> str | None:
        """Why the model is lost for good."""
        return self.executor.failure

    @property
    def ready(self) -> bool:
        """Whether a request would be served now."""
        return self.executor.ready.is_set()

    async def generate(self, prompt: str, max_new_tokens: int, ignore_eos: bool = False) -> str:
        """The model's greedy continuation of `prompt`. Raises a `ServingError`."""
        sequence = Sequence(prompt, max_new_tokens, ignore_eos)
        self.trace.instant("queued", request_id=sequence.request_id, ahead=self.in_flight, characters=len(prompt))
        try:
            return await self.admit(sequence)
        except ServingError as exc:
            exc.request_id = sequence.request_id
            self.stats.count(exc.outcome)
            raise

    async def admit(self, sequence: Sequence) -> str:
        """Let a sequence wait for its pass if there is room, and return its text."""
        if self.closing:
            raise EngineDead("the server is closing")
        if self.in_flight > self.max_queue:
            wait = self.in_flight * self.stats.seconds_per_pass()
            raise QueueFull(f"the queue is full ({self.max_queue} waiting)", retry_after=max(1, math.ceil(wait)))
        arrived, self.in_flight = self.clock(), self.in_flight + 1
        try:
            [result], work = await self.execute([sequence])
        finally:
            self.in_flight -= 1
        self.stats.record(work, [arrived])
        if isinstance(result, Refusal):
            raise Refused(f"prompt: {result.message}", field="prompt")
        self.stats.count("completed")
        self.trace.instant("answered", request_id=sequence.request_id, text=result.text)
        return result.text

    async def execute(self, batch: list[Sequence]) -> Any:
        """Run a batch without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.executor.execute, batch)

    def snapshot(self) -> dict[str, Any]:
        """The counters behind `/stats`."""
        running = min(1, self.in_flight)
        return self.stats.snapshot(self.clock(), running=running, queued=self.in_flight - running)
