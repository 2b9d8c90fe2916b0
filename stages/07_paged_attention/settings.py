"""What the API server can be told beside its engine's settings, and the place where models are found."""

from dataclasses import dataclass, field
from pathlib import Path

from .config import EngineConfig

MODELS = Path(__file__).resolve().parents[2] / "models"


@dataclass(frozen=True)
class Settings:
    """One server's settings. Raises `ValueError` with the flag's name and its limit."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    """here the model may still be a name under `models/`"""
    served_model_name: str | None = None
    """what clients call the model; None is what it was called at the start"""
    deadline: float = 60.0
    """seconds that a core with work may be silent before it counts as hung"""
    trace: Path | None = None
    """file for the trace"""

    def __post_init__(self) -> None:
        if not 0 < self.deadline < float("inf"):
            raise ValueError(f"--deadline must be a number of seconds above 0, not {self.deadline:g}")

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        return self.served_model_name or self.engine.model


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
