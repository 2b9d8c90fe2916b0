"""The seam: which class plays which part. A fault, an exercise and a box in the lab each swap one of them."""

from dataclasses import dataclass, fields

from .core_parts import CoreParts


@dataclass(frozen=True)
class Parts(CoreParts):
    """The players of one server: those of the engine cores, as import paths, and those of the web process."""

    def for_core(self) -> CoreParts:
        """What an engine core needs of this, without what only the web process can load."""
        return CoreParts(**{field.name: getattr(self, field.name) for field in fields(CoreParts)})
