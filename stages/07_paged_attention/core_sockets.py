"""07.9 The engine core's two sockets, each with a thread of its own, so that the loop never waits for a socket.

The input thread decodes what the client sends and puts it into a queue; the output thread takes messages from another
queue, encodes and sends them. Encoding and sending so overlap with the next step, which releases the GIL in its
kernels. A zmq socket belongs to the one thread that uses it.
"""

import queue
import threading
from contextlib import suppress

import msgspec
import zmq

from .messages import Abort, Add, Dead, Outputs, Ready

LINGER = 2000
"""milliseconds that the last messages get to leave"""


class Sockets:
    """`messages` in, `send` out, for as long as the process lives."""

    def __init__(self, input_address: str, output_address: str) -> None:
        self._context = zmq.Context()
        self._incoming: queue.SimpleQueue[Add | Abort | Exception] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[Outputs | Ready | Dead | None] = queue.SimpleQueue()
        self._output = threading.Thread(target=self._send, args=(output_address,), name="output", daemon=True)
        self._input = threading.Thread(target=self._receive, args=(input_address,), name="input", daemon=True)
        self._output.start()
        self._input.start()

    def messages(self, wait: bool) -> list[Add | Abort]:
        """All messages that have come; with `wait`, at least one. Raises what made one unreadable."""
        found: list[Add | Abort] = []
        with suppress(queue.Empty):
            while True:
                message = self._incoming.get(block=wait and not found)
                if isinstance(message, Exception):
                    raise message
                found.append(message)
        return found

    def send(self, message: Outputs | Ready | Dead) -> None:
        """Hand a message to the output thread."""
        self._outgoing.put(message)

    def close(self) -> None:
        """Send what is left, then end both threads."""
        self._outgoing.put(None)
        self._output.join(LINGER / 1000)
        if not self._output.is_alive():  # else nobody listens any more
            self._context.term()
            self._input.join()

    def _receive(self, address: str) -> None:
        decoder = msgspec.msgpack.Decoder(Add | Abort)
        with suppress(zmq.ContextTerminated), self._context.socket(zmq.PULL) as socket:
            socket.connect(address)
            while True:
                frame = socket.recv()
                try:
                    self._incoming.put(decoder.decode(frame))
                except msgspec.DecodeError as exc:
                    self._incoming.put(exc)

    def _send(self, address: str) -> None:
        encoder = msgspec.msgpack.Encoder()
        with self._context.socket(zmq.PUSH) as socket:
            socket.setsockopt(zmq.LINGER, LINGER)
            socket.connect(address)
            while (message := self._outgoing.get()) is not None:
                socket.send(encoder.encode(message))
