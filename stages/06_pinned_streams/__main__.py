"""The flags, then uvicorn: `python -m stages.06_pinned_streams --help`."""

import argparse
from pathlib import Path

from .faults import faulty
from .parts import Parts
from .serve import serve
from .server import create_app
from .settings import Settings

parser = argparse.ArgumentParser(prog=__package__, description="Streams and predictions pin the model that they use.")
parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
parser.add_argument("--port", default=8000, type=int, help="port; 0 takes a free one (default: %(default)s)")
parser.add_argument("--models", default=Settings.models, type=Path, help="models.json, or the directory that holds it")
parser.add_argument("--slots", default=Settings.slots, type=int, help="models in memory at once (%(default)s)")
parser.add_argument("--device", default=Settings.device, help="as torch names it (default: %(default)s)")
parser.add_argument("--max-batch", default=Settings.max_batch, type=int, help="inputs in a pass (%(default)s)")
parser.add_argument("--max-delay-ms", default=Settings.max_delay_ms, type=float, help="wait for company (%(default)s)")
parser.add_argument("--max-queue", default=Settings.max_queue, type=int, help="requests under way (%(default)s)")
parser.add_argument("--deadline", default=Settings.deadline, type=float, help="seconds a caller waits (%(default)s)")
parser.add_argument("--trace", metavar="FILE", type=Path, help="write Chrome trace events to FILE")
parser.add_argument("--fault", metavar="NAME", help="serve with a part that is broken on purpose")


if __name__ == "__main__":
    options = vars(parser.parse_args())
    host, port, fault = options.pop("host"), options.pop("port"), options.pop("fault")
    try:
        app = create_app(Settings(**options), faulty(fault) if fault else Parts())
    except (ValueError, OSError) as exc:
        parser.exit(2, f"error: {exc}\n")
    serve(app, host, port)
