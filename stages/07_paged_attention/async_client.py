"""07.2 The async client: the API server's end of the sockets to its engine cores. It starts, watches and replaces them.

Knows which core has which request, nothing of text or HTTP. Its sockets live on an event loop and a thread of its own:
it is there before the server listens, and however busy the web's loop is, a silent core is noticed on time. A core
that dies or hangs fails its requests at once and is replaced, after a pause that doubles with every loss until it
works again; the others go on meanwhile.
"""

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq.asyncio

from .config import EngineConfig
from .core_link import CoreLink, CoreLost
from .core_parts import CoreParts
from .errors import EngineDead, QueueFull
from .limits import Limits
from .messages import Abort, Add, CoreStats, Outputs, Ready
from .router import Router
from .trace import Tracer

START_DEADLINE = 600.0
"""seconds that a core may take to load its model and allocate its pool"""
MAX_STARTS = 3
"""a core that is lost this often in a row while starting is given up, and the server with it"""
Launch = Callable[[EngineConfig, int, str, str, CoreParts], Any]
"""starts an engine core; returns what `multiprocessing` would: `sentinel`, `kill` and `join`"""


class AsyncClient:
    """Any thread may call it. `on_outputs` and `on_lost` are called on its own thread; `on_fatal` when it gives up."""

    def __init__(
        self, config: EngineConfig, launch: Launch, parts: CoreParts, router: Router, deadline: float, trace: Tracer
    ) -> None:
        self.config = config
        self.deadline = deadline
        self.router = router
        self.trace = trace
        self.limits: Limits | None = None  # of one core: the first that was ready
        self.failure: str | None = None
        self.on_outputs: Callable[[Outputs], object] = lambda _: None
        self.on_lost: Callable[[list[str], str], object] = lambda *_: None
        self.on_fatal: Callable[[], object] = lambda: None
        self._launch = lambda core, into, out: launch(config, core, into, out, parts)
        self._links: dict[int, CoreLink] = {}  # the cores that take requests
        self._lock = threading.Lock()  # guards the router, the links and the ids in them
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._settled = threading.Event()  # every core has been ready, or one was given up, for the first time
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start every core and wait until all are ready. Raises `EngineDead` with the reason if one cannot be had."""
        if not self._loop:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="async client", daemon=True)
            self._thread.start()
        while not self._settled.wait(0.5):
            pass  # a wait without end could sleep through a signal that another thread has taken
        if self.failure:
            raise EngineDead(self.failure)

    def close(self) -> None:
        """End the cores and fail whoever still waits. Leaves no process and no thread behind."""
        self._call(self._stop.set)
        if self._thread:
            self._thread.join()

    def send(self, requests: list[Add]) -> None:
        """Send the requests of one caller, each to the least loaded core; all or none.

        Raises `EngineDead` while no core is ready, `QueueFull` if not all may wait.
        """
        with self._lock:
            if not self._links:
                raise EngineDead(self.failure or "the engine core is being restarted", retry_after=1)
            room, most = self.router.room(), self.router.capacity
            if len(requests) > room:
                raise QueueFull(f"{most - room} of {most} requests are waiting, {len(requests)} more came")
            for request in requests:
                scores = [load.score for load in self.router.loads]
                core = self.router.place()
                link = self._links[core]
                if not link.requests:
                    link.heard = time.monotonic()
                link.requests.add(request.request_id)
                self.trace.instant("to a core", request_id=request.request_id, core=core, scores=scores)
                self._call(link.send, request)

    def abort(self, request_ids: list[str]) -> None:
        """Nobody waits for these any more. Harmless for those that have ended."""
        with self._lock:
            for link in self._links.values():
                if ids := link.requests.intersection(request_ids):
                    link.requests -= ids
                    self._call(link.send, Abort(sorted(ids)))

    def states(self) -> list[str]:
        """Of each core, whether it is "ready" or "restarting"."""
        with self._lock:
            return ["ready" if load.ready else "restarting" for load in self.router.loads]

    def stats(self) -> dict[int, CoreStats]:
        """What the cores that are ready said last."""
        with self._lock:
            return {core: link.stats for core, link in sorted(self._links.items())}

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            if self._loop:
                self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._keep_all())
        except Exception as exc:
            self.failure = f"the async client failed: {exc!r}"
        self._settled.set()
        if self.failure:
            self.on_fatal()

    async def _keep_all(self) -> None:
        with tempfile.TemporaryDirectory(prefix="flo-") as directory, zmq.asyncio.Context() as context:
            cores = range(self.config.data_parallel_size)
            keepers = [asyncio.create_task(self._keep(core, context, Path(directory))) for core in cores]
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait({stop, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            for task in (stop, *keepers):
                task.cancel()
            await asyncio.wait({stop, *keepers})

    async def _keep(self, core: int, context: zmq.asyncio.Context, directory: Path) -> None:
        """Start a core, pass on what it says until it is lost, start another. Return when there is no point."""
        losses = Losses()
        while not self.failure:
            link = CoreLink(context, directory, lambda: self._retire(core))
            reason, pause = "the server is closing", 0.0
            try:
                link.start(lambda into, out: self._launch(core, into, out))
                await self._pass_on(core, link)
            except Exception as exc:  # whatever it is, this core is of no use any more
                reason, unusable = str(exc) or repr(exc), getattr(exc, "unusable", False)
                pause = losses.count(link.ready, worked=bool(link.stats.work))
                if losses.starting == MAX_STARTS:
                    reason = f"an engine core was lost {MAX_STARTS} times at its start: {reason}"
                if unusable or losses.starting == MAX_STARTS:
                    self.failure = reason
            finally:
                self._retire(core)
                self._farewell(link, reason)
                await link.close()
            if not self.failure:
                await asyncio.sleep(pause)

    async def _pass_on(self, core: int, link: CoreLink) -> None:
        """What a core says, from its first word until it is lost. Raises `CoreLost`."""
        try:
            ready = await asyncio.wait_for(link.hear(), START_DEADLINE)
        except TimeoutError:
            raise CoreLost(f"the model was not loaded within {START_DEADLINE:g} s") from None
        assert isinstance(ready, Ready)
        self._welcome(core, link, ready)
        while isinstance(message := await link.hear(), Outputs):
            self._take(core, link, message)

    def _welcome(self, core: int, link: CoreLink, ready: Ready) -> None:
        link.watch(self.deadline)
        with self._lock:
            self._links[core], link.ready = link, True
            link.stats = CoreStats(blocks_free=ready.limits.num_blocks)
            self.router.report(core, 0, 0)
            self.limits = self.limits or ready.limits
            if len(self._links) == len(self.router.loads):
                self._settled.set()

    def _take(self, core: int, link: CoreLink, message: Outputs) -> None:
        with self._lock:
            if not link.lost:
                self.router.report(core, message.stats.waiting, message.stats.running)
            link.stats = message.stats
            link.requests -= {output.request_id for output in message.outputs if output.finish_reason}
        self.trace.replay(message.events)
        self.on_outputs(message)

    def _retire(self, core: int) -> None:
        """It takes no more requests. Those that it has are failed a moment later, when its last words are in."""
        with self._lock:
            self._links.pop(core, None)
            self.router.lost(core)

    def _farewell(self, link: CoreLink, reason: str) -> None:
        with self._lock:
            ids, link.requests = sorted(link.requests), set()
        self.on_lost(ids, reason)


@dataclass
class Losses:
    """How often a core was lost in a row, and how long to wait before another is started. Pure."""

    starting: int = 0
    """losses of cores that were not ready yet"""
    idle: int = 0
    """losses since a core last did any work"""

    def count(self, was_ready: bool, worked: bool) -> float:
        """One more; the pause in seconds, which doubles until a core works again."""
        self.starting = 0 if was_ready else self.starting + 1
        self.idle = 1 if worked else self.idle + 1
        return min(5.0, 0.05 * 2 ** min(self.idle, 7))
