"""The tables of `flo stages` and `flo faults`."""

from rich import box
from rich.table import Table
from rich.text import Text

from .catalog import Fault, Stage, find_faults, find_stages, stage_lines


def stages_table(stages: list[Stage] | None = None) -> Table:
    """A row a stage."""
    table = Table("stage", "idea", "parents", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("code lines", justify="right")
    table.add_column("faults", justify="right")
    for stage in find_stages() if stages is None else stages:
        parents = " ".join(parent.partition("_")[0] for parent in stage.parents)
        counts = str(stage_lines(stage)), str(len(find_faults(stage)))
        table.add_row(stage.title, Text(stage.idea), parents, *counts)
    return table


def faults_table(stages: list[Stage]) -> Table:
    """A row a fault; under it, the repairs of it that look right and are not."""
    rows = [(stage, fault) for stage in stages for fault in find_faults(stage)]
    caption = "flo run 01 --fault NAME serves one; NAME:FIX serves a repair of it that is still wrong."
    if not rows:
        caption = f"{', '.join(stage.name for stage in stages) or 'stages/'}: no faults yet."
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("stage")
    table.add_column("fault", no_wrap=True)
    table.add_column("what a user sees", ratio=4)
    table.add_column("test", ratio=5, overflow="fold")
    for stage, fault in rows:
        table.add_row(stage.number, Text(fault.name, style="bold"), *_cells(fault))
        for fix in fault.fixes:
            table.add_row("", Text(f"  :{fix.name}"), *_cells(fix))
    return table


def _cells(fault: Fault) -> tuple[Text, Text]:
    sees = fault.user_sees or fault.wrong
    return Text(sees), Text(fault.test.replace("::", "::\n"), style="dim")
