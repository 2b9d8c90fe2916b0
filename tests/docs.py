"""What documents have to obey; each checker returns the complaints it has, none being good.

A fenced `bash` block directly after `<!-- tested -->` is an example. A `text` block directly after it is what it
prints; `...` in it stands for anything. A block that is one `flo run` starts a server that lasts until the document
ends. Documents say port 8000; servers take a free one, and the port is put in its place.
"""

import os
import re
import select
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import httpx

from benchmarks.figures import documents
from flo.catalog import check_fault, find_faults, find_stage
from flo.errors import Unknown

HEADINGS = ["The problem", "The idea", "Read it in this order", "Run it", "What it costs", "The faults", "Next"]
MARKER = "<!-- tested -->"
PORT = "8000"
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"\bflo (?:run|follow|faults|diff) (\d\d)\b(?: (\d\d)\b)?([^`|\n]*)")


@dataclass(frozen=True)
class Example:
    """Commands that a document shows, and what it says they print."""

    line: int
    commands: str
    expected: str | None


def examples(text: str) -> list[Example]:
    """The examples of a document, in order. Raises `ValueError` for a marker with no commands behind it."""
    found: list[Example] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line == MARKER:
            if lines[number + 1 : number + 2] != ["```bash"]:
                raise ValueError(f"line {number + 1}: no bash block directly after {MARKER}")
            end = lines.index("```", number + 2)
            expected = None
            if lines[end + 1 : end + 2] == ["```text"]:
                expected = "\n".join(lines[end + 2 : lines.index("```", end + 2)])
            found.append(Example(number + 1, "\n".join(lines[number + 2 : end]), expected))
    return found


def walk(document: Path, root: Path, seconds: float = 60.0) -> list[str]:
    """Run the examples of a document in order, in `root`, up to one that fails. Each may take `seconds`.

    No process outlives the call.
    """
    complaints: list[str] = []
    port = None
    with ExitStack() as servers:
        for example in examples(document.read_text(encoding="utf-8")):
            commands = re.sub(rf":{PORT}\b", f":{port or 0}", example.commands)  # never somebody else's server
            try:
                if commands.startswith("flo run ") and "\n" not in commands:
                    output = servers.enter_context(serving(f"{commands} --port 0", root, seconds))
                    port = ADDRESS.findall(output)[-1]
                else:
                    output = run(commands, root, seconds)
            except RuntimeError as exc:
                return [*complaints, f"line {example.line}: {exc}"]
            if port:
                output = output.replace(f":{port}", f":{PORT}")
            if example.expected is not None and not matches(example.expected, output):
                complaints.append(f"line {example.line}: does not print what it says, but\n{output}")
    return complaints


def run(commands: str, root: Path, seconds: float) -> str:
    """What commands print. Raises `RuntimeError` if they fail or take too long."""
    with start(commands, root, subprocess.STDOUT) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"took longer than {seconds:g} s") from None
    if process.returncode:
        raise RuntimeError(f"exit status {process.returncode}\n{output}")
    return output


@contextmanager
def serving(command: str, root: Path, seconds: float) -> Iterator[str]:
    """Run a server until the block ends; yields what it prints about where it listens. Raises `RuntimeError`."""
    with TemporaryFile("w+") as errors, start(f"exec {command}", root, errors.fileno()) as process:
        assert process.stdout
        told, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if told else ""
        if not (address := ADDRESS.search(line)):
            errors.seek(0)
            raise RuntimeError(f"did not start\n{errors.read()}")
        # it has told its address, and is about to listen: a refused connection is tried again, after a growing pause
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False, timeout=seconds) as client:
            client.get(f"{address[0]}/health").raise_for_status()
        yield line


@contextmanager
def start(commands: str, root: Path, stderr: int) -> "Iterator[subprocess.Popen[str]]":
    """A shell with the commands of this environment, in a session of its own, which ends with the block."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "-euc", commands],
        cwd=root,
        env={**os.environ, "PATH": path, "COLUMNS": "120", "no_proxy": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                end(process)


def end(process: "subprocess.Popen[str]") -> None:
    """Ask a server to end; end its whole session if it does not, or if it is no server."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with suppress(ProcessLookupError, PermissionError):  # nobody of the session is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def matches(expected: str, output: str) -> bool:
    """Whether the output is as expected, `...` standing for anything."""
    output = output.strip()
    first, *others = expected.strip().split("...")
    if not others:
        return output == first
    *middle, last = others
    if not output.startswith(first) or not output.endswith(last):
        return False
    place = len(first)
    for piece in middle:
        place = output.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return place <= len(output) - len(last)


def link_complaints(root: Path) -> list[str]:
    """Every relative link of every Markdown file leads to a file of the repository, and to a heading in it."""
    complaints: list[str] = []
    for path in documents(root):
        if path.suffix != ".md":
            continue
        for target in LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            leads = (path.parent / name).resolve() if name else path
            if not leads.exists() or not leads.is_relative_to(root.resolve()):
                complaints.append(f"{path.relative_to(root)}: {target} leads nowhere")
            elif anchor and anchor not in anchors(leads):
                complaints.append(f"{path.relative_to(root)}: {target} is no heading there")
    return complaints


def anchors(path: Path) -> set[str]:
    """The anchors of a Markdown file's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def readme_complaints(stage: Path) -> list[str]:
    """A stage's README has the seven parts, a diagram, the carried files, every fault, and none that is not there."""
    readme = stage / "README.md"
    if not readme.is_file():
        return [f"{stage.name}: no README.md"]
    text, complaints = readme.read_text(encoding="utf-8"), []
    if re.findall(r"^## (.+)$", FENCED.sub("", text), re.MULTILINE) != HEADINGS:
        complaints.append(f"{stage.name}: the parts must be {', '.join(HEADINGS)}")
    if text.count("```mermaid") != 1:
        complaints.append(f"{stage.name}: there must be one mermaid diagram")
    there = {fault.name for fault in find_faults(find_stage(stage.name, stage.parent))}
    named = set(re.findall(r"\]\(faults/(\w+)\.py\)", text))
    complaints += [f"{stage.name}: the fault {name} is not mentioned" for name in sorted(there - named)]
    complaints += [f"{stage.name}: there is no fault {name}" for name in sorted(named - there)]
    carried = set(tomllib.loads((stage.parent / "lineage.toml").read_text(encoding="utf-8"))[stage.name]["carried"])
    told = re.search(r"^Already read.*?\n\n", text, re.MULTILINE | re.DOTALL)
    if carried != set(re.findall(r"`([\w/]+\.py)`", told[0] if told else "")):
        complaints.append(
            f"{stage.name}: already read, so the lineage says, are {', '.join(sorted(carried)) or 'none'}"
        )
    return complaints


def command_complaints(document: Path, stages: Path) -> list[str]:
    """Every `flo` command that a document names has a stage, and a fault if it names one, that exist."""
    complaints: list[str] = []
    for first, second, rest in COMMAND.findall(document.read_text(encoding="utf-8")):
        try:
            stage = find_stage(first, stages)
            if second:
                find_stage(second, stages)
            if fault := re.search(r"--fault ([a-z0-9_:]+)", rest):
                check_fault(stage, fault[1])
        except Unknown as exc:
            complaints.append(f"{document.name}: {exc}")
    return complaints
