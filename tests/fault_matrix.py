"""The fault matrix: a pytest plugin that runs a fault's test against the reference and against every broken variant.

A test that takes the `parts` fixture runs once with the reference parts of its stage, and once more for each variant
(a fault, or a naive fix of one) that names it as its `TEST`. On a variant it has to fail: by an assertion of its own,
inside `tests/`, with the variant's `MESSAGE`. Anything else fails the suite, and so does a variant that no test judges.
"""

import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
STAGES = ROOT / "stages"


@dataclass(frozen=True)
class Variant:
    """One way to play a stage: the reference, a fault, or a naive fix of a fault."""

    name: str
    parts: Any
    broken: bool = True
    test: str | None = None
    message: str | None = None


@cache
def reference(stage: str) -> Variant:
    """The stage as it should be; `stage` is its folder's name."""
    return Variant("reference", import_module(f"stages.{stage}.parts").Parts(), broken=False)


@cache
def variants(stage: str) -> tuple[Variant, ...]:
    """Every fault of a stage and every naive fix of one."""
    found: list[Variant] = []
    for path in sorted((STAGES / stage / "faults").glob("[!_]*.py")):
        fault = import_module(f"stages.{stage}.faults.{path.stem}")
        players = {path.stem: fault}
        players |= {f"{path.stem}:{name}": fix for name, fix in getattr(fault, "NAIVE_FIXES", {}).items()}
        for name, player in players.items():
            told = (getattr(player, constant, None) for constant in ("TEST", "MESSAGE"))
            found.append(Variant(name, player.PARTS, True, *told))
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
    where = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    raised_in = [path.resolve() for path in where if "_pytest" not in path.parts][-1]
    if not isinstance(error, AssertionError | pytest.fail.Exception) or not raised_in.is_relative_to(TESTS):
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
    return 1.0 if variant.broken else 30.0


def variant_of(item: pytest.Item) -> Variant | None:
    """The broken variant that this run of a test is about, if it is about one."""
    found = item.callspec.params.get("variant") if hasattr(item, "callspec") else None  # pyright: ignore
    return found if isinstance(found, Variant) and found.broken else None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    variant = variant_of(pyfuncitem)
    if not variant:
        return (yield)
    error: BaseException | None = None
    try:
        yield
    except (Exception, pytest.fail.Exception) as exc:
        error = exc
    if complaint := judge(variant, error):
        pytest.fail(complaint, pytrace=False)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip, however it came about, judges nothing."""
    report = yield
    variant = variant_of(item)
    if variant and report.skipped:
        report.outcome, report.longrepr = "failed", f"{variant.name}: its test was skipped, and judged nothing"
    return report


class Unjudged(pytest.Item):
    """Stands in the suite for a variant that no collected test judges, and fails."""

    complaint = ""

    def runtest(self) -> None:
        pytest.fail(self.complaint, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    judged = {(item.nodeid.partition("[")[0], variant.name) for item in items if (variant := variant_of(item))}
    for stage, variant in due(config):
        if (variant.test, variant.name) not in judged:
            name = f"stages/{stage}/faults/{variant.name}"
            missing = Unjudged.from_parent(session, name=name, nodeid=name)
            missing.complaint = f"{variant.name}: no test judges it: is {variant.test} one, and does it take `parts`?"
            items.append(missing)


def due(config: pytest.Config) -> Iterator[tuple[str, Variant]]:
    """The variants whose tests this run was asked to collect: whole files, not single tests."""
    asked = [(config.invocation_params.dir / arg).resolve() for arg in config.args if "::" not in arg]
    for path in sorted(STAGES.glob("[0-9][0-9]_*")):
        for variant in variants(path.name) if (path / "faults").is_dir() else ():
            file = ROOT / (variant.test or f"tests/stage_{path.name[:2]}/").partition("::")[0]
            if any(file.is_relative_to(place) for place in asked):
                yield path.name, variant
