"""What only a machine with a GPU can show, in one command: `python -m benchmarks.gpu_check`.

Needs torch and what the models need, but none of the web packages: where they are missing, something stands in.
`--cpu-dry-run` rehearses every check without a GPU, small, with Triton's interpreter and without real graphs; it writes
nothing. Made to end within eight minutes; the table comes last.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from .gpu import decode_attention, eviction, fused, graphs, kernels, parity, throughput
from .gpu.rows import Check, Row
from .stamp import RESULTS, stamp, write_result

CHECKS = (kernels, parity, graphs, decode_attention, fused, throughput, eviction)
REHEARSAL = "* measured on a processor or in Triton's interpreter, and without real graphs: these figures mean nothing."

parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description="Check what needs a GPU.")
parser.add_argument("--cpu-dry-run", action="store_true", help="rehearse on the CPU; nothing is written")


def main() -> int:
    """Run all checks, and print the table last; 1 if one has failed, 2 if there is no GPU."""
    dry = parser.parse_args().cpu_dry_run
    if not dry and not torch.cuda.is_available():
        print("There is no CUDA device here; --cpu-dry-run rehearses the checks without one.", file=sys.stderr)
        return 2
    if dry:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported
        torch.set_num_threads(1)  # everything is small
    device, began = "cpu" if dry else "cuda", time.monotonic()
    rows = [row for module in CHECKS for row in told(module.__name__.rpartition(".")[2], module.check, device)]
    if not dry:
        models = "the shipped models and random ones of Llama's and Qwen3's shapes"
        result = {"stamp": stamp(models, "python -m benchmarks.gpu_check"), "gpu": gpu()}
        print("written:", write_result("gpu", {**result, "checks": [asdict(row) for row in rows]}, RESULTS))
    where = "rehearsal on the CPU" if dry else gpu()["name"]
    print(f"\n{where}, torch {torch.__version__}, {platform.machine()}, {time.monotonic() - began:.0f} s")
    for row in rows:
        star = "*" if dry and row.figures else " "
        print(f"{'pass' if row.passed else 'FAIL'}{star} {row.check:13}  {row.subject:26}  {row.found}")
    if dry:
        print(REHEARSAL)
    return 0 if all(row.passed for row in rows) else 1


def told(name: str, check: Check, device: str) -> Iterator[Row]:
    """The rows of a check, with a line of progress. One that raises has failed; the others still run."""
    began = time.monotonic()
    try:
        yield from check(device)
    except Exception as exc:
        yield Row(name, "raised", " ".join(f"{type(exc).__name__}: {exc}".split())[:300], passed=False)
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def gpu() -> dict[str, Any]:
    """What the GPU is."""
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    return {"name": name, "capability": ".".join(map(str, capability)), "cuda": torch.version.cuda}


if __name__ == "__main__":
    sys.exit(main())
