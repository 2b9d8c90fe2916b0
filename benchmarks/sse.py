"""Server-sent events, line by line. Knows the wire format (WHATWG HTML, 9.2.6) and nothing of what it carries."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerEvent:
    """One event: its type ("message" unless named) and its data."""

    name: str
    data: str


class SseParser:
    """Feed it lines without their endings; it returns an event at the blank line that ends one."""

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []

    def feed(self, line: str) -> ServerEvent | None:
        """The event that this line completes, if any."""
        if not line:
            event = ServerEvent(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None
