"""The flags, then uvicorn: `python -m stages.03_continuous_streaming --help`."""

import argparse
from pathlib import Path

from .faults import faulty
from .parts import Parts
from .serve import serve
from .server import create_app
from .settings import Settings

parser = argparse.ArgumentParser(prog=__package__, description="Every step is a new batch.")
parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
parser.add_argument("--port", default=8000, type=int, help="port; 0 takes a free one (default: %(default)s)")
parser.add_argument("--model", default=Settings.model, help="name, directory or hub id (default: %(default)s)")
parser.add_argument("--device", default=Settings.device, help="as torch names it (default: %(default)s)")
parser.add_argument("--batch-size", default=Settings.batch_size, type=int, help="rows in a step (%(default)s)")
parser.add_argument("--max-queue", default=Settings.max_queue, type=int, help="requests that may wait (%(default)s)")
parser.add_argument("--deadline", default=Settings.deadline, type=float, help="seconds a step may take (%(default)s)")
parser.add_argument("--trace", metavar="FILE", type=Path, help="write Chrome trace events to FILE")
parser.add_argument("--vllm-url", metavar="URL", help="a running `vllm serve`, for /generate_vllm")
parser.add_argument("--fault", metavar="NAME", help="serve with a part that is broken on purpose")


if __name__ == "__main__":
    options = vars(parser.parse_args())
    host, port, fault = options.pop("host"), options.pop("port"), options.pop("fault")
    try:
        app = create_app(Settings(**options), faulty(fault) if fault else Parts())
    except (ValueError, OSError) as exc:
        parser.exit(2, f"error: {exc}\n")
    serve(app, host, port)
