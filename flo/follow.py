"""One request's way through a stage, told from its trace: `flo follow 01 "Count from 3 to 9:"`.

Knows the format of the trace and nothing of any stage: an event belongs to the request if its `args` carry the id.
`Story` is pure, from lines of a trace to lines on the screen; around it a server is started, asked and read from.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.markup import escape

from .asking import ask, pick_ask
from .catalog import find_stage
from .servers import running_stage

PLUMBING = {"part", "at", "request_id", "request_ids"}
LONGEST_VALUE = 56
"""characters of a value that are shown"""


@dataclass
class Story:
    """Turns the lines of one trace into printable lines about one request: the first that shows up after `begin`."""

    request_id: str | None = None
    _begun: bool = False
    _names: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _process: int | None = None
    _start: float = 0.0
    _previous: float | None = None

    def begin(self) -> None:
        """From here on events count; before, only the names of processes and threads do."""
        self._begun = True

    def tell(self, line: str) -> Iterator[str]:
        """What one line of the trace adds to the story, in rich's markup."""
        text = line.strip().rstrip(",")
        if not text.startswith("{"):
            return
        event: dict[str, Any] = json.loads(text)
        where, args = (event.get("pid", 0), event.get("tid", 0)), event.get("args", {})
        if event["ph"] == "M":
            self._names[(event["name"], *where)] = args["name"]
        elif self._begun and self._is_ours(args):
            yield from self._hop(event, *where, args)

    def _is_ours(self, args: dict[str, Any]) -> bool:
        self.request_id = self.request_id or args.get("request_id")
        ids = [args.get("request_id"), *args.get("request_ids", ())]
        return self.request_id is not None and self.request_id in ids

    def _hop(self, event: dict[str, Any], pid: int, tid: int, args: dict[str, Any]) -> Iterator[str]:
        begin = event["ts"] / 1000
        end = begin + event.get("dur", 0) / 1000
        if self._previous is None:
            self._start = self._previous = begin
        if pid != self._process:
            crossing = "" if self._process is None else ", across a process boundary"
            name = self._names.get(("process_name", pid, tid), "process")
            yield f"[bold cyan]---- {escape(name)}, process {pid}{crossing} ----[/]"
            self._process = pid
        took = f"[bold] took {end - begin:.1f} ms[/]" if event["ph"] == "X" else ""
        waited = f"+{max(0.0, begin - self._previous):.1f}"
        yield f"{begin - self._start:9.1f} {waited:>9}  [bold]{escape(event['name'])}[/]{took}{escape(crossed(args))}"
        thread = self._names.get(("thread_name", pid, tid), str(tid))
        yield f"[dim]{'':21}{escape(thread)}: {escape(args.get('part', '?'))} at {escape(args.get('at', '?'))}[/]"
        self._previous = max(self._previous, end)


def crossed(args: dict[str, Any]) -> str:
    """The data that an event carries, shortened to fit a line."""
    shown = [f"{key} {shorten(value)}" for key, value in args.items() if key not in PLUMBING]
    if (company := len(args.get("request_ids", ())) - 1) > 0:
        shown.append(f"with {company} other{'s' if company > 1 else ''}")
    return f"  {', '.join(shown)}" if shown else ""


def shorten(value: Any) -> str:
    """A value as JSON; of a long one its beginning, and of a long list how many it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[:LONGEST_VALUE]}...{f' ({len(value)} in all)' if isinstance(value, list | dict) else ''}"


class Tail:
    """Reads a file that grows, whole lines at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open(encoding="utf-8")
        self._rest = ""

    def new_lines(self) -> list[str]:
        """The lines that were finished since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        return lines

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def follow_request(console: Console, stage_name: str, prompt: str, flags: list[str]) -> int:
    """Serve a stage, send it one request, and print the request's way while it goes. Returns the exit status."""
    stage, story = find_stage(stage_name), Story()

    def say(markup: str) -> None:
        console.print(markup, soft_wrap=True)

    def tell_new(tail: Tail) -> None:
        for line in tail.new_lines():
            for told in story.tell(line):
                say(told)

    with ExitStack() as stack:
        trace = Path(stack.enter_context(TemporaryDirectory(prefix="flo-")), "trace.json")
        sender = stack.enter_context(ThreadPoolExecutor(1))  # ends after the server, so it never waits for a reply
        with console.status(f"Starting {stage.title} ..."):
            server = stack.enter_context(running_stage(stage.name, *flags, "--trace", str(trace)))
        tail = Tail(trace)
        stack.callback(tail.close)
        tell_new(tail)  # nothing to print yet, but processes have got their names
        story.begin()
        question = pick_ask(server.client.get("/openapi.json").raise_for_status().json(), prompt)
        say(f"[bold]{stage.title}: POST {question.path}[/] {escape(json.dumps(question.body, ensure_ascii=False))}\n")
        say(f"[dim]{'ms':>9} {'waited':>9}  what happened, and the data that crossed (then: thread, part, code)[/]")
        pending = sender.submit(ask, server.client, question)
        while not wait_for([pending], 0.02).done:
            tell_new(tail)
        tell_new(tail)
    reply = pending.result()
    if story.request_id:
        say(f"\n[dim]The request's id was {story.request_id}; the files are under stages/.[/]")
    if reply.error:
        say(f"[bold red]Answer ({reply.status}):[/] {escape(reply.error)}")
        return 1
    say(f"[bold]Answer[/] after {reply.seconds * 1000:.1f} ms: {escape(json.dumps(reply.text, ensure_ascii=False))}")
    return 0
