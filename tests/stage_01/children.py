"""Children without a process: on a thread, at the far end of a real pipe, so that a test says what they do and when."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any

from tests.serving import Stage

stage = Stage("01_single_request")


class FakeChild:
    """Says that it is ready, does what `play(pipe)` does, and dies when that returns."""

    def __init__(self, play: Callable[[Any], object]) -> None:
        self.connection, self._theirs = Pipe()
        self.process = self
        self.killed = threading.Event()
        threading.Thread(target=self._run, args=(play,), daemon=True).start()

    def _run(self, play: Callable[[Any], object]) -> None:
        with suppress(EOFError, OSError):  # it was killed
            self._theirs.send(("ready", 0, None, []))
            play(self._theirs)
        self._hang_up()

    def _hang_up(self) -> None:
        with suppress(OSError), socket.socket(fileno=os.dup(self._theirs.fileno())) as pipe:
            pipe.shutdown(socket.SHUT_RDWR)  # closing it would not wake a thread that reads from it

    def kill(self) -> None:
        self.killed.set()
        self._hang_up()

    def join(self, timeout: float | None = None) -> None: ...


def reply(pipe: Any, call_id: int, batch: list[Any]) -> None:
    """The right reply to a call: its prompt."""
    pipe.send(("complete", call_id, ([stage.sequence.Completion(batch[0].prompt, 1)], None), []))


def answers(pipe: Any) -> None:
    """Replies to each call."""
    while True:
        reply(pipe, *pipe.recv())


def dies(pipe: Any) -> None:
    """Is gone as soon as it has a call."""
    pipe.recv()


def hangs(pipe: Any) -> None:
    """Takes calls, and never replies."""
    while True:
        pipe.recv()


def in_turn(*plays: Callable[[Any], object]) -> Callable[..., FakeChild]:
    """A `spawn` whose children play these, the last one from then on."""
    left = list(plays)
    return lambda *_: FakeChild(left.pop(0) if len(left) > 1 else left[0])
