"""The guided tour: every stage is started, asked by ten users at once, judged, and explained with its own figures.

Starts processes and prints. What to ask a stage and what to say about it is in `visits.py`, the arithmetic in
`figures.py`.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import date
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .asking import Ask, Reply, ask
from .catalog import ROOT, Stage, find_stage, find_stages
from .errors import StageFailed, UserError
from .figures import Figures, measure, tour_table
from .servers import running_stage
from .visits import VISITS, Visit

PATIENCE = 8.0
"""seconds after which the users of one stage ask nothing more; a big model needs that, tiny-opt does not"""
LONGEST_SHOWN = 400
"""characters of a question or an answer; images are longer"""
Exchange = tuple[Ask, Reply]


def take_tour(console: Console, model: str, names: list[str], results: Path = ROOT / "results") -> int:
    """Visit the stages named, or all. Returns the exit status: 0 if every stage ran and every answer was right."""
    stages = [find_stage(name) for name in names] or find_stages()
    for stage in stages:
        if stage.name not in VISITS:
            raise UserError(f"the tour does not know {stage.name} yet: give it an entry in flo/visits.py")
    rows: list[Figures] = []
    for stage in stages:
        console.rule(f"[bold]{stage.title}[/]", align="left")
        console.print(stage.idea, style="italic", markup=False)
        try:
            rows.append(visit(console, stage, model, VISITS[stage.name]))
        except StageFailed as exc:
            console.print(str(exc), style="red", markup=False)
            rows.append(Figures(stage.name, failed=True))
        console.print()
    written = _write_results(results, model, rows)
    console.print(tour_table(rows))
    console.print(f"{_circumstances(model)}. The figures are in {os.path.relpath(written)}.", markup=False)
    return 1 if any(row.failed or row.wrong for row in rows) else 0


def visit(console: Console, stage: Stage, model: str, plan: Visit) -> Figures:
    """Serve one stage, ask, judge, and say what to notice. Raises `StageFailed`."""
    judged = Path(model).name == "tiny-opt" or not plan.one_model  # what another model should answer, nobody knows
    if not judged:
        plan = replace(plan, question=_shorter(plan.question))
    with ExitStack() as stack:
        users = stack.enter_context(ThreadPoolExecutor(plan.users))  # ends after the server, so it never hangs
        began = time.monotonic()
        with console.status(f"Starting {stage.title} ..."):
            flags = ["--model", model] if plan.one_model else []
            server = stack.enter_context(running_stage(stage.name, *flags))
        told = " ".join(["flo run", stage.number, *stage.quick])
        console.print(f"Started in {time.monotonic() - began:.1f} s at {server.url}: {told}")
        exchanges = [(sample, ask(server.client, sample)) for sample in plan.samples]
        for sample, reply in exchanges:
            question, answer = _as_json(sample.body), reply.error or _as_json(reply.text)
            console.print(f"  POST {sample.path} {question}\n    -> {answer}", markup=False)
        before, began = server.stats(), time.monotonic()
        crowd = _send_crowd(console, users, server.client, plan)
        seconds = time.monotonic() - began
        figures = measure(stage.name, crowd, seconds, before, server.stats())
    wrong = [(sent, got) for sent, got in exchanges + crowd if not _is_right(sent, got, judged)]
    figures.asked, figures.wrong, figures.judged = len(exchanges + crowd), len(wrong), judged
    _print_verdict(console, figures.asked, wrong, judged)
    console.print("What to notice:")
    for remark in plan.notice:
        console.print(f"  - {figures.fill(remark)}", markup=False)
    return figures


def _is_right(sent: Ask, got: Reply, judged: bool) -> bool:
    return got.answers(sent) if judged else not got.error


def _shorter(question: Callable[[int, int], Ask]) -> Callable[[int, int], Ask]:
    """The same questions with short answers: a big model may go on and on, and does so slowly."""

    def ask_for_less(user: int, number: int) -> Ask:
        asked = question(user, number)
        limit = "max_tokens" if "max_tokens" in asked.body else "max_new_tokens"
        return replace(asked, body={**asked.body, limit: 8}) if "prompt" in asked.body else asked

    return ask_for_less


def _send_crowd(console: Console, users: ThreadPoolExecutor, client: httpx.Client, plan: Visit) -> list[Exchange]:
    """All users at once; each waits for an answer before it asks again."""
    stop, deadline = threading.Event(), time.monotonic() + PATIENCE
    columns = TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    what = f"{plan.users} users at once"
    if not console.is_terminal:
        console.print(f"  {what}, {plan.rounds} requests each ...")
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=plan.users * plan.rounds)

        def use(user: int, advance: Callable[[], object]) -> list[Exchange]:
            exchanges: list[Exchange] = []
            for number in range(plan.rounds):
                if stop.is_set() or time.monotonic() > deadline:
                    break
                question = plan.question(user, number)
                exchanges.append((question, ask(client, question)))
                advance()
            return exchanges

        try:
            asked = [users.submit(use, user, lambda: progress.advance(task)) for user in range(plan.users)]
            by_user = [pending.result() for pending in asked]
        finally:
            stop.set()
    if sum(map(len, by_user)) < plan.users * plan.rounds:
        console.print(f"  They asked nothing more after {PATIENCE:.0f} s.")
    in_turn = [exchange for turn in zip_longest(*by_user) for exchange in turn]
    return [exchange for exchange in in_turn if exchange]


def _print_verdict(console: Console, asked: int, wrong: list[Exchange], judged: bool) -> None:
    if wrong:
        console.print(f"  [bold red]{len(wrong)} of {asked} answers are wrong or missing,[/] such as:")
        for sent, got in wrong[:3]:
            console.print(f"    {_as_json(sent.body)}\n    -> {got.error or _as_json(got.text)}", markup=False)
    elif judged:
        console.print(f"  [green]All {asked} answers are right.[/]")
    else:
        console.print(f"  All {asked} answers came; whether they are right can be told with tiny-opt only.")


def _as_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}... ({len(text)} characters)"


def _circumstances(model: str) -> str:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    versions = f"Python {platform.python_version()}, torch {version('torch')}"
    return f"Measured on {date.today()} with {model}: {machine}; {versions}"


def _write_results(directory: Path, model: str, rows: list[Figures]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    result = {
        "date": date.today().isoformat(),
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in ("torch", "transformers")},
        "model": model,
        "stages": [asdict(row) for row in rows],
    }
    path = directory / "tour.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path
