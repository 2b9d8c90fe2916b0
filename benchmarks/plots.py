"""Plots of results, as PNG files. Each carries a digest of the result it was drawn from, so a stale one is found.

`python -m benchmarks.plots` draws all again. Only `draw` needs matplotlib, which the `bench` extra installs.
"""

import hashlib
from pathlib import Path

from .scenarios import SCENARIOS
from .scenarios.scenario import Scenario
from .stamp import RESULTS, read_result, stamp_line


def draw(scenario: Scenario, directory: Path) -> Path:
    """Draw the plot of a written result beside it."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    assert scenario.draw
    result = read_result(scenario.name, directory)
    figure = pyplot.figure(layout="constrained")
    scenario.draw(result, figure)
    figure.supxlabel(stamp_line(result["stamp"]), fontsize=7, color="gray")
    path = directory / f"{scenario.name}.png"
    figure.savefig(path, dpi=120, metadata={"Source": digest(scenario.name, directory)})
    pyplot.close(figure)
    return path


def digest(name: str, directory: Path) -> str:
    """Identifies the content of a result."""
    return hashlib.sha256((directory / f"{name}.json").read_bytes()).hexdigest()


def is_stale(name: str, directory: Path) -> bool:
    """Whether the plot of a result is missing, or was drawn from another one."""
    path = directory / f"{name}.png"
    return not path.exists() or digest(name, directory).encode() not in path.read_bytes()


if __name__ == "__main__":
    for scenario in SCENARIOS.values():
        if scenario.draw and (RESULTS / f"{scenario.name}.json").exists():
            print(draw(scenario, RESULTS))
