"""The fault matrix: a pytest plugin that runs a fault's test against the reference and against every broken variant.

A test that takes the `parts` fixture runs once with the reference parts of its stage, and once more for each variant
(a fault, or a naive fix of one) that names it as its `TEST`. On a variant it has to fail: by an assertion of its own,
inside `tests/`, with the variant's `MESSAGE`. Anything else fails the suite.
"""

import traceback
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

STAGES = Path("stages")


@dataclass(frozen=True)
class Variant:
    """One way to play a stage: the reference (`message` is None), a fault, or a naive fix of a fault."""

    name: str
    parts: Any
    test: str | None = None
    message: str | None = None


@cache
def reference(stage: str) -> Variant:
    """The stage as it should be; `stage` is its folder's name."""
    return Variant("reference", import_module(f"stages.{stage}.parts").Parts())


@cache
def variants(stage: str) -> tuple[Variant, ...]:
    """Every fault of a stage and every naive fix of one."""
    found: list[Variant] = []
    for path in sorted((STAGES / stage / "faults").glob("[!_]*.py")):
        fault = import_module(f"stages.{stage}.faults.{path.stem}")
        found.append(Variant(path.stem, fault.PARTS, fault.TEST, fault.MESSAGE))
        for name, fix in getattr(fault, "NAIVE_FIXES", {}).items():
            found.append(Variant(f"{path.stem}:{name}", fix.PARTS, fix.TEST, fix.MESSAGE))
    return tuple(found)


def stage_of(path: Path) -> str:
    """The stage folder that tests in `tests/stage_NN/` are about."""
    number = path.parent.name.removeprefix("stage_")
    [stage] = STAGES.glob(f"{number}_*")
    return stage.name


def judge(variant: Variant, error: BaseException | None) -> str | None:
    """Why this outcome of a variant's test is not the failure that was promised; None if it is."""
    if error is None:
        return f"{variant.name}: its test passes on the fault"
    where = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in where if "_pytest" not in Path(frame.filename).parts]
    if not isinstance(error, AssertionError | pytest.fail.Exception) or "tests" not in Path(ours[-1].filename).parts:
        return f"{variant.name}: failed for another reason: {error!r}"
    if not variant.message or variant.message not in str(error):
        return f"{variant.name}: failed, but without {variant.message!r}: {error}"
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "parts" in metafunc.fixturenames:
        stage = stage_of(metafunc.definition.path)
        chosen = [reference(stage), *(v for v in variants(stage) if v.test == metafunc.definition.nodeid)]
        metafunc.parametrize("variant", chosen, ids=[v.name for v in chosen], indirect=True)


@pytest.fixture
def variant(request: pytest.FixtureRequest) -> Variant:
    return request.param


@pytest.fixture
def parts(variant: Variant) -> Any:
    """The parts under test."""
    return variant.parts


@pytest.fixture
def patience(variant: Variant) -> float:
    """Seconds to wait for what must come: ample where it will come, short where a fault means that it never does."""
    return 30.0 if variant.message is None else 1.0


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    variant = getattr(pyfuncitem, "callspec", None) and pyfuncitem.callspec.params.get("variant")
    if not isinstance(variant, Variant) or variant.message is None:
        return (yield)
    error: BaseException | None = None
    try:
        yield
    except (Exception, pytest.fail.Exception) as exc:
        error = exc
    if complaint := judge(variant, error):
        pytest.fail(complaint, pytrace=False)
    return True
