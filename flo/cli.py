"""The command line: what there is to type, and nothing of how it works.

Each command imports its own module only when it is called, so that `flo --help` is instant.
"""

import os
import sys
from typing import Annotated

import typer

from .console import fail, get_console, one_line_errors

app = typer.Typer(
    help="Model serving, one idea at a time. Start with [bold]flo tour[/], then read stages/README.md.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

LOOK, RUN, MORE = "See it work", "Read the code", "Set up and measure"
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
StageName = Annotated[str, typer.Argument(metavar="STAGE", help="such as 01, 1 or single_request", show_default=False)]


@app.command(rich_help_panel=LOOK)
def tour(
    model: Annotated[str, typer.Option(help="name, directory or hub id, as `flo run` takes it")] = "tiny-opt",
    stage: Annotated[list[str] | None, typer.Option(help="only this stage; may be repeated")] = None,
) -> None:
    """Start every stage, send it ten users' requests, and say what to notice."""
    with one_line_errors():
        from .tour import take_tour

        sys.exit(take_tour(get_console(), model, stage or []))


@app.command(rich_help_panel=LOOK, context_settings=PASS_THROUGH)
def follow(context: typer.Context, stage: StageName) -> None:
    """Follow one request through a stage, hop by hop: flo follow 01 "Count from 3 to 9:"

    Whatever comes after the prompt goes to the stage, such as --model or --fault.
    """
    with one_line_errors():
        from .follow import follow_request

        rest = list(context.args)
        prompt = rest.pop(0) if rest and not rest[0].startswith("-") else "Count from 3 to 9:"
        sys.exit(follow_request(get_console(), stage, prompt, _checked(stage, rest)))


@app.command(rich_help_panel=LOOK, context_settings={**PASS_THROUGH, "help_option_names": []})
def run(context: typer.Context, stage: StageName) -> None:
    """Serve a stage: flo run 01 --port 8000

    All flags go to the stage: `flo run 01 --fault NAME` serves it broken on purpose, `flo run 01 --help` lists them.
    """
    if stage in ("-h", "--help"):
        print(context.get_help())
        return
    with one_line_errors():
        from .servers import stage_command, stage_environment

        command = stage_command(stage, *_checked(stage, context.args))
        get_console(stderr=True).print("$ python", *command[1:], style="dim", markup=False, soft_wrap=True)
        os.execve(command[0], command, stage_environment())  # no process of ours in between: signals just work


@app.command(rich_help_panel=RUN)
def stages() -> None:
    """List the stages: idea, parents, lines of code, faults."""
    with one_line_errors():
        from .tables import stages_table

        get_console().print(stages_table())


@app.command(rich_help_panel=RUN)
def diff(before: StageName, after: StageName) -> None:
    """Show what a stage changes: flo diff 01 02"""
    with one_line_errors():
        from .diff import show_diff

        show_diff(get_console(), before, after)


@app.command(rich_help_panel=RUN)
def faults(
    stage: Annotated[str | None, typer.Argument(metavar="[STAGE]", help="all of them if left out")] = None,
) -> None:
    """List the bugs that can be served on purpose: what a user sees, and the test that catches each."""
    with one_line_errors():
        from .catalog import find_stage, find_stages
        from .tables import faults_table

        get_console().print(faults_table([find_stage(stage)] if stage else find_stages()))


@app.command(rich_help_panel=MORE)
def fetch(model: Annotated[str, typer.Argument(help="smollm2 is the one there is")]) -> None:
    """Fetch a real model (SmolLM2, 135 million parameters): flo fetch smollm2"""
    with one_line_errors():
        from .catalog import ROOT
        from .errors import Unknown
        from .fetch import FetchError, fetch_smollm2

        if model.lower() != "smollm2":
            raise Unknown(f"no model {model!r} to fetch: did you mean smollm2?")
        try:
            fetch_smollm2(ROOT / "models")
        except FetchError as exc:
            fail(str(exc), 1)


@app.command(rich_help_panel=MORE)
def triton(port: Annotated[int, typer.Option(help="where it listens, on loopback")] = 8100) -> None:
    """Fetch a real Triton server once (Linux) and start it with models/triton, for stages 04 to 06."""
    with one_line_errors():
        from .triton import serve_triton

        serve_triton(port)


@app.command(rich_help_panel=MORE, context_settings={**PASS_THROUGH, "help_option_names": []})
def bench(context: typer.Context) -> None:
    """Measure the stages under load. All flags go to `python -m benchmarks`."""
    with one_line_errors():
        from .catalog import ROOT
        from .servers import stage_environment

        if not (ROOT / "benchmarks" / "__main__.py").exists():
            fail("benchmarks/__main__.py is not there", 1)
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *context.args], stage_environment())


def _checked(stage: str, flags: list[str]) -> list[str]:
    """The flags as they are, once the stage and the fault they name exist."""
    from .catalog import check_fault, find_stage

    found = find_stage(stage)
    for place, flag in enumerate(flags):
        if flag == "--fault" and flags[place + 1 :]:
            check_fault(found, flags[place + 1])
        elif flag.startswith("--fault="):
            check_fault(found, flag.partition("=")[2])
    return flags
