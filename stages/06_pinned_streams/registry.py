"""Which models there are: `models.json`, read into typed metadata. Knows no framework and loads nothing.

Clients hold an opaque `id`; the loader uses `name`; `framework` says which worker runs it. So an id can be pointed at
another checkpoint, framework or server, and nobody's code changes.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Metadata(BaseModel):
    """One line of the registry."""

    model_config = ConfigDict(extra="ignore", frozen=True)  # later stages give models more knobs

    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    """a directory beside the registry; else what the framework makes of it, such as a hub id"""
    type: str
    framework: str
    version: str
    description: str
    url: str | None = None
    """where the server is that runs it, if another one does"""
    max_batch: int | None = Field(None, ge=1)
    """rows in a pass; Triton: `max_batch_size`"""
    max_delay_ms: float | None = Field(None, ge=0, allow_inf_nan=False)
    """how long an input may wait for company; Triton: `max_queue_delay_microseconds`"""
    max_queue: int | None = Field(None, ge=1)
    """inputs that may wait; Triton: `max_queue_size`, where 0 means without limit"""
    root: Path = Field(Path(), exclude=True)
    """the registry's own directory"""

    @property
    def directory(self) -> Path:
        """Where its files are, if they are here."""
        return self.root / self.name


class Registry(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    models: list[Metadata]


def read_registry(path: Path) -> dict[str, Metadata]:
    """Metadata by id. Raises `ValueError` with one line that says what is wrong in which place."""
    path = path / "models.json" if path.is_dir() else path
    try:
        models = Registry.model_validate_json(path.read_bytes()).models
    except OSError as exc:
        raise ValueError(f"--models {path}: {exc.strerror}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"--models {path}: {where}: {first['msg']}") from exc
    found = {model.id: model.model_copy(update={"root": path.parent}) for model in models}
    if len(found) < len(models):
        raise ValueError(f"--models {path}: two models have the same id")
    return found
