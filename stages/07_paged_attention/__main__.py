"""The flags, then uvicorn: `python -m stages.07_paged_attention --help`. They are named as `vllm serve` names them."""

import argparse
from pathlib import Path

from .config import CHOICES, EngineConfig
from .faults import faulty
from .parts import Parts
from .serve import serve
from .server import create_app
from .settings import Settings

parser = argparse.ArgumentParser(prog=__package__, description="A KV cache in pages, behind OpenAI's API.")
parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
parser.add_argument("--port", default=8000, type=int, help="port; 0 takes a free one (default: %(default)s)")
parser.add_argument("--served-model-name", metavar="NAME", help="what clients call the model (default: as --model)")
parser.add_argument("--deadline", default=Settings.deadline, type=float, help="seconds of silence (%(default)s)")
parser.add_argument("--trace", metavar="FILE", type=Path, help="write Chrome trace events to FILE")
parser.add_argument("--fault", metavar="NAME", help="serve with a part that is broken on purpose")

engine = parser.add_argument_group("engine")
for name, what in {
    "model": "name, directory or hub id",
    "device": "as torch names it",
    "dtype": "of weights and cache",
    "max_model_len": "tokens of a request, prompt and answer together",
    "block_size": "tokens in a block",
    "gpu_memory_utilization": "share of the GPU's memory to use",
    "num_gpu_blocks_override": "blocks in the pool, on any device",
    "max_num_batched_tokens": "tokens in a step",
    "max_num_seqs": "requests that run at the same time",
    "max_queue": "requests that may wait for a core",
    "attention_backend": "who computes attention",
    "distributed_executor_backend": "where the worker lives: in the core's process, or in one of its own",
    "data_parallel_size": "engine cores",
}.items():
    default, flag = getattr(EngineConfig, name), f"--{name.replace('_', '-')}"
    kind = int if default is None else type(default)
    engine.add_argument(flag, default=default, type=kind, choices=CHOICES.get(name), help=f"{what} (%(default)s)")
engine.add_argument("--enable-prefix-caching", default=True, action=argparse.BooleanOptionalAction)
engine.add_argument("--enforce-eager", action="store_true", help="start at once: no compiling, no CUDA graphs")


if __name__ == "__main__":
    options = vars(parser.parse_args())
    host, port, fault = options.pop("host"), options.pop("port"), options.pop("fault")
    own = {name: options.pop(name) for name in ("served_model_name", "deadline", "trace")}
    try:
        app = create_app(Settings(EngineConfig(**options), **own), faulty(fault) if fault else Parts())
    except (ValueError, OSError) as exc:
        parser.exit(2, f"error: {exc}\n")
    serve(app, host, port)
