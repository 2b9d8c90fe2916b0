"""Results as files: what was measured, and on what, with which versions, when, and by which command."""

import json
import os
import platform
import subprocess
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def stamp(model: str, command: str) -> dict[str, Any]:
    """The circumstances of a measurement. No host name: the figures describe a kind of machine, not one machine."""
    return {
        "date": date.today().isoformat(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in ("torch", "transformers")},
        "model": model,
        "command": command,
        "commit": _output("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }


def stamp_line(stamp: dict[str, Any]) -> str:
    """The stamp as one sentence, for the foot of a table or a plot."""
    machine, versions = stamp["machine"], ", ".join(f"{name} {number}" for name, number in stamp["versions"].items())
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    return f"Measured on {stamp['date']} with {stamp['model']}: {where}; {versions}."


def processor() -> str:
    """What the processor calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()


def write_result(name: str, result: dict[str, Any], directory: Path = RESULTS) -> Path:
    """Write a stamped result as JSON, rounded to what a measurement can tell."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps(_rounded(result), indent=1) + "\n", encoding="utf-8")
    return path


def read_result(name: str, directory: Path = RESULTS) -> dict[str, Any]:
    """A result that was written before."""
    return json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _output(*command: str) -> str | None:
    """What a command prints; None if it cannot be run or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
