"""What happened when, as Chrome trace events that open in Perfetto (https://ui.perfetto.dev).

A tracer knows a clock and a sink, nothing of requests or models. In a child process the sink is a list whose
events ride home in the replies. Format: "Trace Event Format", Google, 2016; a missing closing bracket is allowed,
so every line can be flushed as it comes and a killed server leaves a readable file.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

Event = dict[str, Any]


class Tracer:
    """Turns calls into events: `name`, time in microseconds, process, thread, and where in the code it happened."""

    def __init__(
        self,
        sink: Callable[[Event], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        process: str = "server",
    ) -> None:
        self.sink = sink
        self.clock = clock
        self.process = process
        self._named: set[tuple[int, int]] = set()

    def instant(self, name: str, **args: Any) -> None:
        """Record a moment. `args` are what a reader wants to know: `request_id` or `request_ids`, `step`, sizes."""
        if self.sink:
            self._emit({"name": name, "ph": "i", "s": "t", "ts": self.clock() * 1e6}, sys._getframe(1), args)

    @contextmanager
    def span(self, name: str, **args: Any) -> Iterator[dict[str, Any]]:
        """Record a stretch of time. The body may add to the yielded arguments what it only learns on the way."""
        frame, start = sys._getframe(2), self.clock()
        try:
            yield args
        finally:
            if self.sink:
                event = {"name": name, "ph": "X", "ts": start * 1e6, "dur": (self.clock() - start) * 1e6}
                self._emit(event, frame, args)

    def replay(self, events: list[Event]) -> None:
        """Record events that another process has sent home."""
        for event in events if self.sink else ():
            self.sink(event)  # pyright: ignore[reportOptionalCall]

    def _emit(self, event: Event, frame: FrameType, args: dict[str, Any]) -> None:
        assert self.sink
        where = {"pid": os.getpid(), "tid": threading.get_native_id()}
        if (where["pid"], where["tid"]) not in self._named:
            self._named.add((where["pid"], where["tid"]))
            names = {"process_name": self.process, "thread_name": threading.current_thread().name}
            for name, value in names.items():
                self.sink({"name": name, "ph": "M", "ts": event["ts"], **where, "args": {"name": value}})
        path = Path(frame.f_code.co_filename)
        at = {"part": frame.f_code.co_qualname, "at": f"{path.parent.name}/{path.name}:{frame.f_lineno}"}
        self.sink({**event, **where, "args": {**at, **args}})


def file_sink(path: Path) -> Callable[[Event], None]:
    """A sink that appends one line an event to `path` and flushes it, from any thread. Raises `ValueError`."""
    try:
        file, lock = path.open("w", encoding="utf-8"), threading.Lock()
    except OSError as exc:
        raise ValueError(f"--trace {path}: {exc.strerror}") from exc
    file.write("[\n")

    def write(event: Event) -> None:
        with lock, suppress(OSError):  # a full disk must not end the server
            file.write(json.dumps(event, default=repr) + ",\n")
            file.flush()

    return write
