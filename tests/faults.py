"""What fault files have to obey; each function returns the complaints it has, none being good.

Files are read, not imported. That each variant is judged by its test, and fails as it says, is the fault matrix's job.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from flo.catalog import Fault, read_fault

PROMISED = {
    "01": "blocking_route crossed_replies glued_prompt dead_child_hangs hung_child_hangs silent_truncation",
    "02": "sleep_in_handler two_drivers live_handle right_padding poisoned_batch unbounded_queue",
    "03": "right_padding eos_never_fires bare_except wrong_loop handles_in_the_pipe zombie_stream off_by_one"
    " retokenized offline_vllm",
    "04": "eviction_keeps_memory two_sources_of_truth shared_class_dict ignores_name attributes_after_super double_load"
    " failed_load_evicts unload_in_del trusts_unload opens_client_paths",
    "05": "only_when_full timer_resets poisoned_batch cancelled_future_kills_loop stale_queue drops_parked mixed_shapes"
    " wrong_count unbounded_queue",
    "06": "evicted_mid_stream leaked_pin pin_after_load kill_when_full loading_is_victim stop_by_text",
    "07": "leaks_blocks_on_abort rounds_blocks_down slot_off_by_block sees_the_neighbour hangs_when_pool_too_small"
    " thrashes hash_without_parent drops_too_long duplicate_ids tears_utf8 stop_across_tokens dead_but_healthy"
    " seed_depends_on_batch graph_pad_writes_last_slot tokenizes_on_the_loop",
}
"""the faults that a stage must have, by its number; it may have more"""


def fault_files(stage: Path) -> list[Path]:
    """The fault files of a stage."""
    return sorted((stage / "faults").glob("[!_]*.py"))


def stage_complaints(stage: Path) -> list[str]:
    """A stage has every fault that was promised."""
    promised = set(PROMISED.get(stage.name[:2], "").split())
    missing = sorted(promised - {path.stem for path in fault_files(stage)})
    return [f"{stage.name}: there is no fault {name}" for name in missing]


def docstring_complaints(path: Path) -> list[str]:
    """A fault says in one line what is wrong, then what a user sees, and where it bites."""
    paragraphs = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")
    complaints: list[str] = []
    if not paragraphs[0].endswith(".") or "\n" in paragraphs[0]:
        complaints.append(f"{path.stem}: the first paragraph must be one line, a sentence")
    for opening in ("A user sees: ", "Seen in the wild: "):
        if not any(paragraph.startswith(opening) for paragraph in paragraphs):
            complaints.append(f"{path.stem}: no paragraph begins with {opening.strip()!r}")
    return complaints


def variant_complaints(path: Path, root: Path) -> list[str]:
    """A fault and its naive fixes name a test of their own stage, and a message that is this test's own."""
    fault = read_fault(path, path.parent.parent.name)
    named = [(fault.name, fault), *((f"{fault.name}:{fix.name}", fix) for fix in fault.fixes)]
    return [f"{name}: {complaint}" for name, variant in named for complaint in wrong_with(variant, root)]


def wrong_with(variant: Fault, root: Path) -> Iterator[str]:
    """What is wrong with one variant's `TEST` and `MESSAGE`."""
    file, _, name = variant.test.partition("::")
    if Path(file).parent != Path("tests", f"stage_{variant.stage[:2]}"):
        yield f"TEST is {variant.test!r}, which is no test of its stage"
    elif not (root / file).is_file() or (texts := texts_of(root / file, name)) is None:
        yield f"TEST is {variant.test!r}, which does not exist"
    elif not variant.message or not any(variant.message in text for text in texts):
        yield f"MESSAGE is {variant.message!r}, which its test does not say"


def texts_of(file: Path, name: str) -> list[str] | None:
    """The strings in a function and in what it uses of its own file, docstrings left out; None if there is no such."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    known = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if name not in known:
        return None
    texts: list[str] = []
    used, fresh = {name}, [name]
    while fresh:
        for node in ast.walk(known[fresh.pop()]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value = ast.Constant(None)  # a docstring
            met = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
            if met in known and met not in used:
                used.add(met)
                fresh.append(met)
    return texts
