"""What a server can be told, with its limits, and the place where models are found."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """One server's settings. Raises `ValueError` with the flag's name and its limit."""

    models: Path = Path(__file__).resolve().parents[2] / "models"
    """the registry: a `models.json`, or the directory that holds one"""
    slots: int = 2
    """models in memory at the same time"""
    device: str = "cpu"
    """as torch names it"""
    max_queue: int = 128
    """requests that may be under way; one more is refused"""
    deadline: float = 60.0
    """seconds that a caller waits, a load included"""
    trace: Path | None = None
    """file for the trace"""

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"--slots must be at least 1, not {self.slots}")
        if self.max_queue < 1:
            raise ValueError(f"--max-queue must be at least 1, not {self.max_queue}")
        if not 0 < self.deadline < float("inf"):
            raise ValueError(f"--deadline must be a number of seconds above 0, not {self.deadline:g}")
