"""Lets stages be imported where the packages of their web side are missing. What stands in does no more than that."""

import importlib.util
import sys
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

WEB = {
    "fastapi": ("fastapi.exceptions", "fastapi.responses"),
    "starlette": ("starlette.exceptions", "starlette.types"),
    "pydantic": (),
}
"""packages, and what stages import from inside them"""


class StandIn(ModuleType):
    """A package that is not there; whatever is imported from it is an empty class that takes anything."""

    __path__: Any = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {"__init__": lambda *_, **options: None})


class Struct:
    """In place of msgspec's: what derives from it is a dataclass. Nothing is encoded here."""

    def __init_subclass__(cls, frozen: bool = False, **_: Any) -> None:
        for name in cls.__annotations__:
            if isinstance(default := getattr(cls, name, None), list | dict):
                setattr(cls, name, field(default_factory=lambda default=default: deepcopy(default)))
        dataclass(frozen=frozen)(cls)


class Stage:
    """The modules of a stage as attributes, imported when they are first asked for."""

    def __init__(self, name: str) -> None:
        self._package = f"stages.{name}"  # no identifier, so no import statement

    def __getattr__(self, module: str) -> Any:
        stand_in_for_the_web()
        return import_module(f"{self._package}.{module}")


def stand_in_for_the_web() -> None:
    """Put something in place of each package that is missing."""
    for package, inner in WEB.items():
        if not there(package):
            sys.modules.update({name: StandIn(name) for name in (package, *inner)})
    if not there("msgspec"):
        sys.modules["msgspec"] = StandIn("msgspec")
        sys.modules["msgspec"].Struct = Struct  # pyright: ignore


def there(package: str) -> bool:
    """Whether a package can be imported."""
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None
