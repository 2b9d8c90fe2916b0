"""What a server can be told, with its limits, and the place where models are found."""

from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parents[2] / "models"


@dataclass(frozen=True)
class Settings:
    """One server's settings. Raises `ValueError` with the flag's name and its limit."""

    model: str = "tiny-opt"
    """a name under `models/`, a directory, or a hub id"""
    device: str = "cpu"
    """as torch names it"""
    max_queue: int = 128
    """requests that may wait for their pass; one more is refused"""
    deadline: float = 60.0
    """seconds that one pass may take before the child counts as hung"""
    trace: Path | None = None
    """file for the trace"""

    def __post_init__(self) -> None:
        if self.max_queue < 1:
            raise ValueError(f"--max-queue must be at least 1, not {self.max_queue}")
        if not 0 < self.deadline < float("inf"):
            raise ValueError(f"--deadline must be a number of seconds above 0, not {self.deadline:g}")


def find_model(name: str) -> str:
    """The directory or hub id that `name` stands for. Raises `ValueError` with one line when it cannot be one."""
    for path in (Path(name), MODELS / name):
        if (path / "config.json").is_file():
            return str(path)
    if Path(name).exists():
        raise ValueError(f"--model {name}: there is no config.json in it, so it is no Hugging Face model")
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and name[-1] != "/":
        return name
    here = sorted(path.parent.name for path in MODELS.glob("[!.]*/generation_config.json"))  # those that write text
    hint = "; `flo fetch smollm2` gets it" if name == "smollm2" else ""
    raise ValueError(f"--model {name}: no directory, no hub id, and none of {', '.join(here) or 'no models'}{hint}")
