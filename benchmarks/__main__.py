"""Runs scenarios, prints their tables, and writes their results and plots, stamped: `python -m benchmarks users`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from .records import WrongAnswers
from .scenarios import SCENARIOS
from .scenarios.scenario import Scenario
from .stamp import RESULTS, ROOT, stamp, write_result
from .targets import ModelMissing

QUICK_SECONDS = 0.5
QUICK_RESULTS = ROOT / "results" / "benchmarks"
"""ignored by git: a quick look is no result"""

parser = argparse.ArgumentParser(
    prog=__package__,
    description="Measure the servers, side by side in one run.",
    epilog="; ".join(f"{scenario.name}: {scenario.idea}" for scenario in SCENARIOS.values()),
)
parser.add_argument("what", nargs="*", default=["all"], help=f"{', '.join(SCENARIOS)}, all, or quick (default: all)")
parser.add_argument("--seconds", type=float, help="how long each cell lasts (default: the scenario's own)")
parser.add_argument("--out", type=Path, help=f"directory for results (default: {RESULTS.relative_to(ROOT)})")


def main() -> int:
    """Run what the command line asks for; 1 if a server gave wrong answers, or if what was asked for cannot be run."""
    options = parser.parse_args()
    quick, everything = "quick" in options.what, bool({"all", "quick"} & {*options.what})
    names = [name for name in SCENARIOS if SCENARIOS[name].quick or not quick] if everything else options.what
    if unknown := [name for name in names if name not in SCENARIOS]:
        parser.error(f"no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    directory = options.out or (QUICK_RESULTS if quick else RESULTS)
    console = Console(width=None if sys.stdout.isatty() else 140)
    for name in names:
        scenario = SCENARIOS[name]
        seconds = options.seconds or (QUICK_SECONDS if quick else scenario.seconds)
        try:
            measure(scenario, seconds, directory, console)
        except WrongAnswers as exc:
            console.print(f"[bold red]{name}:[/] {exc}. Nothing was written.", highlight=False)
            return 1
        except ModelMissing as exc:
            console.print(f"[bold yellow]{name}:[/] not measured: {exc}", highlight=False)
            if not everything:
                return 1
    return 0


def measure(scenario: Scenario, seconds: float, directory: Path, console: Console) -> None:
    """Run one scenario, show it, and write its result and its plot."""
    with console.status(scenario.idea) as status:
        result = scenario.run(seconds, lambda doing: status.update(f"{scenario.name}: {doing}"))
    command = f"python -m benchmarks {scenario.name} --seconds {seconds:g}"
    result = {"stamp": stamp(" and ".join(result.get("models", [scenario.model])), command), **result}
    console.print(scenario.table(result).rich())
    written = [write_result(scenario.name, result, directory)]
    if scenario.draw:
        from .plots import draw  # the only need for matplotlib, which is an extra

        written.append(draw(scenario, directory))
    console.print(f"written: {', '.join(str(path) for path in written)}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
