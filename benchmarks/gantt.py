"""Draws who held a slot when: a panel a server, a bar a sequence. Knows the cells of a result and matplotlib's axes."""

from typing import Any

from benchmarks.sheet import ms, server_name

COLORS = {"A": "#9ecae1", "B": "#6baed6", "C": "#4292c6", "D": "#2171b5", "E": "#fd8d3c", "F": "#d94801"}


def draw(result: dict[str, Any], figure: Any) -> None:
    """A panel a stage: four slots and, below them, those who wait for one."""
    figure.set_size_inches(10, 6.4)
    stages = list(dict.fromkeys(cell["target"] for cell in result["cells"]))
    panels = figure.subplots(len(stages), 1, sharex=True)
    for axes, stage in zip(panels, stages, strict=True):
        cells = [cell for cell in result["cells"] if cell["target"] == stage]
        for cell in cells:
            held(axes, cell)
            if cell["name"] in result["later"]:
                waiting(axes, cell, row=result["slots"] + result["later"].index(cell["name"]))
        rows = [
            *(f"slot {slot + 1}" for slot in range(result["slots"])),
            *(f"{name} waits" for name in result["later"]),
        ]
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


def waiting(axes: Any, cell: dict[str, Any], row: int) -> None:
    """When one came, and until when it waited."""
    color = COLORS[cell["name"]]
    queued, begin = (cell[name] * 1000 for name in ("queued", "begin"))
    axes.plot([queued, begin], [row, row], ":", color=color, linewidth=2)
    axes.plot(queued, row, ">", color=color)
    axes.text(begin, row, f" {begin - queued:.0f} ms", va="center", color=color)
