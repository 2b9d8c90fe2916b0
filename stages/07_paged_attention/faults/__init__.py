"""Parts of this stage that are broken on purpose, one file a fault; `flo faults` lists them."""

from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


def faulty(name: str) -> Any:
    """The parts of a fault ("glued_prompt") or of a naive fix of one ("glued_prompt:cut_characters").

    Raises `ValueError` with the names there are.
    """
    fault, _, fix = name.partition(":")
    faults = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    if fault not in faults:
        near = get_close_matches(fault, faults, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"--fault {fault}: no such fault{hint} (there are {', '.join(faults)})")
    module = import_module(f".{fault}", __package__)
    if not fix:
        return module.PARTS
    fixes = getattr(module, "NAIVE_FIXES", {})
    if fix not in fixes:
        raise ValueError(f"--fault {name}: no such naive fix (there are {', '.join(fixes) or 'none'})")
    return fixes[fix].PARTS
