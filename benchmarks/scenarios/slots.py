"""Six requests on four slots: who holds a slot when, in a batch that waits for its slowest and in one that does not.

Four prompts come at once, as one request, and fill the batch; E and F come a little later, one by one, at seeded
moments. The traces of both servers tell the rest. One look each, and the length of a cell plays no role.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.load import Client, open_loop, poisson_arrivals
from benchmarks.prompts import count
from benchmarks.records import OK, WrongAnswers
from benchmarks.sheet import Sheet, ms, server_name
from benchmarks.targets import Target, running_target
from benchmarks.timeline import read_trace, timeline

from .scenario import Result, Scenario

MODEL = "tiny-opt"
STAGES = ("02", "03")
SLOTS = 4
PROMPTS = {
    "A": count(10, 12),
    "B": count(20, 68),
    "C": count(30, 53),
    "D": count(40, 46),
    "E": count(50, 73),
    "F": count(60, 72),
}
AT_ONCE = ("A", "B", "C", "D")
LATER = ("E", "F")
RATE, SEED = 40.0, 5
"""arrivals a second of E and F"""
COLORS = {"A": "#9ecae1", "B": "#6baed6", "C": "#4292c6", "D": "#2171b5", "E": "#fd8d3c", "F": "#d94801"}


def run(seconds: float, tell: Callable[[str], object]) -> Result:
    """Trace one server after the other."""
    cells: list[dict[str, Any]] = []
    for stage in STAGES:
        tell(f"six requests for stage {stage}")
        with TemporaryDirectory(prefix="slots-") as directory:
            trace = Path(directory, "trace.json")
            with running_target(stage, MODEL, "--batch-size", f"{SLOTS}", "--trace", f"{trace}") as target:
                asyncio.run(six_requests(target))
            answers = {name: (prompt.answer or "", prompt.tokens) for name, prompt in PROMPTS.items()}
            held = timeline(read_trace(trace.read_text(encoding="utf-8")), answers)
        cells += [{"target": stage, **one.cell()} for one in held]
    return {"slots": SLOTS, "cells": cells}


async def six_requests(target: Target) -> None:
    """Send them. Raises `WrongAnswers`."""
    async with Client(target.url) as client:
        await client.send(count(1, 5), 0.0)  # the first pass of a server is slower than any other
        four = {"prompts": [PROMPTS[name].text for name in AT_ONCE], "max_new_tokens": 50}
        answers = asyncio.create_task(client.post("/generate", four))
        later = (PROMPTS[name] for name in LATER)
        run = await open_loop(client.send, later, arrivals(), 1.0)
        if (await answers)["generated_texts"] != [PROMPTS[name].answer for name in AT_ONCE]:
            raise WrongAnswers(f"stage {target.name}: {await answers}")
        if wrong := [record for record in run.records if record.outcome != OK]:
            raise WrongAnswers(f"stage {target.name}: {wrong[0].outcome} {wrong[0].detail}")


def arrivals() -> list[float]:
    """When E and F come, in seconds."""
    return poisson_arrivals(RATE, 60.0, SEED)[: len(LATER)]


def table(result: Result) -> Sheet:
    """One row a request: how long it waited, held a slot, and held it for nothing, at each stage."""
    stages = list(dict.fromkeys(cell["target"] for cell in result["cells"]))
    found = {(cell["target"], cell["name"]): cell for cell in result["cells"]}
    rows = [
        (
            name,
            f"{found[stages[0], name]['tokens']}",
            *(ms(found[stage, name][what]) for stage in stages for what in ("waited", "held", "idle")),
        )
        for name in PROMPTS
    ]
    each = [f"{server_name(stage)}: {what}" for stage in stages for what in ("waited", "held a slot", "of that idle")]
    return Sheet("Six requests on four slots", ("request", "tokens", *each), rows, words=1)


def draw(result: Result, figure: Any) -> None:
    """A panel a stage: four slots and, below them, those who wait for one."""
    figure.set_size_inches(10, 6.4)
    stages = list(dict.fromkeys(cell["target"] for cell in result["cells"]))
    panels = figure.subplots(len(stages), 1, sharex=True)
    for axes, stage in zip(panels, stages, strict=True):
        cells = [cell for cell in result["cells"] if cell["target"] == stage]
        for cell in cells:
            held(axes, cell)
            if cell["name"] in LATER:
                waiting(axes, cell)
        rows = [*(f"slot {slot + 1}" for slot in range(SLOTS)), *(f"{name} waits" for name in LATER)]
        title = f"{server_name(stage)}: {HOW[stage]} (a step takes {ms(step(cells))})"
        axes.set(title=title, yticks=range(len(rows)), yticklabels=rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    end = 1000 * max(cell["end"] for cell in result["cells"])
    panels[-1].set(xlabel="milliseconds since the first four came", xlim=(0, 1.02 * end))
    gets, idle = ({"facecolor": "gray"}, {"facecolor": "white", "edgecolor": "gray", "hatch": "////"})
    marks = [panels[0].barh(0, 0, label=label, **how) for label, how in (("gets a token a step", gets), (IDLE, idle))]
    marks += panels[0].plot([], [], "k>:", label="comes, and waits for a slot")
    figure.legend(handles=marks, loc="outside upper center", ncols=3, frameon=False)


def step(cells: list[dict[str, Any]]) -> float:
    """Seconds between two tokens of the longest answer."""
    longest = max(cells, key=lambda cell: cell["tokens"])
    return (longest["last_token"] - longest["begin"]) / longest["tokens"]


HOW = {"02": "the batch waits for its slowest, then all slots change hands", "03": "a slot changes hands at any step"}
IDLE = "has all its tokens, and still holds the slot"


def held(axes: Any, cell: dict[str, Any]) -> None:
    """One sequence in its slot: solid while it gets tokens, hatched after its last."""
    begin, last, end = (cell[name] * 1000 for name in ("begin", "last_token", "end"))
    color, slot = COLORS[cell["name"]], cell["slot"]
    axes.barh(slot, last - begin, left=begin, height=0.8, color=color, edgecolor="white")
    axes.barh(slot, end - last, left=last, height=0.8, facecolor="white", edgecolor=color, hatch="////")
    axes.text((begin + last) / 2, slot, cell["name"], ha="center", va="center", color="white", weight="bold")


def waiting(axes: Any, cell: dict[str, Any]) -> None:
    """When one came, and until when it waited."""
    row, color = SLOTS + LATER.index(cell["name"]), COLORS[cell["name"]]
    queued, begin = (cell[name] * 1000 for name in ("queued", "begin"))
    axes.plot([queued, begin], [row, row], ":", color=color, linewidth=2)
    axes.plot(queued, row, ">", color=color)
    axes.text(begin, row, f" {begin - queued:.0f} ms", va="center", color=color)


SCENARIO = Scenario("slots", "who holds a slot when: six requests on four slots", MODEL, 1.0, run, table, draw)
