"""The seam: which class plays which part. A fault, an exercise and a box in the lab each swap one of them."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from .engine import Engine
from .executor import Executor


@dataclass(frozen=True)
class Parts:
    """The players of one server. The worker lives in the child, so it is an import path, resolved there."""

    engine: type[Engine] = Engine
    executor: type[Executor] = Executor
    worker: str = f"{__package__}.worker:Worker"


def faulty(name: str) -> Parts:
    """The parts of a fault ("glued_prompt") or of a naive fix of one ("glued_prompt:cut_characters").

    Raises `ValueError` with the names there are.
    """
    fault, _, fix = name.partition(":")
    faults = sorted(path.stem for path in (Path(__file__).parent / "faults").glob("[!_]*.py"))
    if fault not in faults:
        near = get_close_matches(fault, faults, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"--fault {fault}: no such fault{hint} (there are {', '.join(faults)})")
    module = import_module(f".faults.{fault}", __package__)
    if not fix:
        return module.PARTS
    fixes = getattr(module, "NAIVE_FIXES", {})
    if fix not in fixes:
        raise ValueError(f"--fault {name}: no such naive fix (there are {', '.join(fixes) or 'none'})")
    return fixes[fix].PARTS
