"""`python -m tests.served 01_single_request [FLAGS]`: the stage as its users serve it, but for a scripted worker."""

import sys
from dataclasses import replace

from tests.serving import Stage

if __name__ == "__main__":
    name, *flags = sys.argv[1:]
    stage = Stage(name)
    options = vars(getattr(stage, "__main__").parser.parse_args(flags))  # noqa: B009  it is no name to be mangled
    host, port, _ = (options.pop(flag) for flag in ("host", "port", "fault"))
    parts = replace(stage.parts.Parts(), worker=f"tests.stage_{name[:2]}.scripted:Worker")
    stage.serve.serve(stage.server.create_app(stage.settings.Settings(**options), parts), host, port)
