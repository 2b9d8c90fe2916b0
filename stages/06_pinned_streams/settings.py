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
    max_batch: int = 32
    """inputs in a pass, for models that predict and whose registry entry does not say"""
    max_delay_ms: float = 5.0
    """how long an input may wait for company, likewise"""
    max_queue: int = 128
    """requests that may be under way, and inputs or streams that may wait for one model; one more is refused"""
    deadline: float = 60.0
    """seconds that a caller waits, a load included; a stream, until it has been admitted"""
    trace: Path | None = None
    """file for the trace"""

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"--slots must be at least 1, not {self.slots}")
        if self.max_batch < 1:
            raise ValueError(f"--max-batch must be at least 1, not {self.max_batch}")
        if not 0 <= self.max_delay_ms < float("inf"):
            raise ValueError(f"--max-delay-ms must be a number of at least 0, not {self.max_delay_ms:g}")
        if self.max_queue < 1:
            raise ValueError(f"--max-queue must be at least 1, not {self.max_queue}")
        if not 0 < self.deadline < float("inf"):
            raise ValueError(f"--deadline must be a number of seconds above 0, not {self.deadline:g}")
