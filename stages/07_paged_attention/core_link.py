"""07.2 One life of one engine core, seen from the client: its process, its two sockets, and the watch kept over it.

Knows processes, sockets and deadlines, nothing of requests but their ids. A core that replaces a lost one gets a new
link with new addresses, so that nothing meant for the dead reaches the living.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from .config import EngineConfig
from .core_parts import CoreParts, resolve
from .messages import Abort, Add, CoreStats, Dead, Outputs, Ready

LAST_WORDS = 0.1
"""seconds that a message of a core which has just died may take to arrive"""


class CoreLost(Exception):
    """The core died or hangs; the message says which. `unusable` if starting another would not help."""

    def __init__(self, reason: str, unusable: bool = False) -> None:
        super().__init__(reason)
        self.unusable = unusable


def spawn_core(config: EngineConfig, core: int, input_address: str, output_address: str, parts: CoreParts) -> Any:
    """Start an engine core in a process of its own; it may have a child, so it is no daemon."""
    arguments = (config, core, input_address, output_address, parts)
    process = CoreProcess(target=_main, args=arguments, daemon=False)
    process.start()
    return process


class CoreProcess(SpawnProcess):
    """In a process group of its own, so that its end is its worker's end too, stopped or stuck as that may be."""

    def kill(self) -> None:
        super().kill()
        if self.pid:
            with suppress(OSError):  # there is no group yet, or nobody in it any more
                os.killpg(self.pid, signal.SIGKILL)


def _main(*arguments: Any) -> None:
    os.setpgid(0, 0)
    resolve(f"{__package__}.engine_core:run_engine_core")(*arguments)  # here, so that the web process never loads it


class CoreLink:
    """Belongs to one event loop. The sockets are files in `directory`; `on_lost` is called when the core is."""

    def __init__(self, context: zmq.asyncio.Context, directory: Path, on_lost: Callable[[], object]) -> None:
        self.on_lost = on_lost
        self.process: Any = None
        self.ready = False  # whether it has ever been
        self.requests: set[str] = set()  # ids of those that the core owes an answer
        self.stats = CoreStats()
        self.heard = time.monotonic()  # when it last said something, or got something to do
        self._input = zmq.Socket(context, zmq.PUSH)  # sends at once or not at all: never waits
        self._output = context.socket(zmq.PULL)
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._next: asyncio.Future[bytes] | None = None
        self._decode = msgspec.msgpack.Decoder(Ready | Outputs | Dead).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self.addresses = f"ipc://{directory}/{id(self)}.in", f"ipc://{directory}/{id(self)}.out"
        for socket, address in zip((self._input, self._output), self.addresses, strict=True):
            socket.set_hwm(0)  # what may wait is bounded by admission, not here
            socket.bind(address)

    def start(self, launch: Callable[[str, str], Any]) -> None:
        """Start the core's process: `launch(input_address, output_address)`."""
        self.process = launch(*self.addresses)
        self._loop.add_reader(self.process.sentinel, self._lose, "the engine core's process died")

    def send(self, message: Add | Abort) -> None:
        """Send at once. What a core that is gone cannot take is dropped: its requests have been failed, or will be."""
        with suppress(zmq.ZMQError):
            self._input.send(self._encode(message), zmq.NOBLOCK)

    @property
    def lost(self) -> bool:
        """Whether the core is dead, hung or closed; it may still be heard."""
        return self._lost.done()

    async def hear(self) -> Ready | Outputs:
        """The next message. Raises `CoreLost`, with the core's own reason if it still gave one."""
        coming = self._next = self._next or asyncio.ensure_future(self._output.recv())
        await asyncio.wait({coming, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            await asyncio.wait({coming}, timeout=LAST_WORDS)
        if not coming.done():
            raise CoreLost(self._lost.result())
        message, self._next, self.heard = self._decode(coming.result()), None, time.monotonic()
        if isinstance(message, Dead):
            raise CoreLost(message.reason, message.unusable)
        return message

    def watch(self, deadline: float) -> None:
        """From now on, give the core up when it has work and says nothing for `deadline` seconds."""
        left = deadline - (time.monotonic() - self.heard)
        if self.requests and left <= 0:
            self._lose(f"the engine core was silent for longer than the deadline of {deadline:g} s; it was ended")
        elif not self._lost.done():
            self._loop.call_later(left if left > 0 else deadline, self.watch, deadline)

    async def close(self) -> None:
        """End the process, busy or stopped as it may be, and leave nothing of it behind."""
        self._lose("closed")
        try:
            if self.process:
                self.process.kill()
                await asyncio.to_thread(self.process.join)
        finally:
            if self._next:
                self._next.cancel()
            for socket in (self._input, self._output):
                socket.close(linger=0)

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
            self.on_lost()
            if self.process:
                self._loop.remove_reader(self.process.sentinel)
