"""`python -m tests.served 01_single_request [FLAGS]`: the stage as its users serve it, but for a scripted worker."""

import sys
from dataclasses import replace
from importlib import import_module

from tests.serving import Stage

if __name__ == "__main__":
    name, *flags = sys.argv[1:]
    stage = Stage(name)
    options = vars(getattr(stage, "__main__").parser.parse_args(flags))  # noqa: B009  it is no name to be mangled
    host, port, _ = (options.pop(flag) for flag in ("host", "port", "fault"))
    scripted = f"tests.stage_{name[:2]}.scripted"
    players = getattr(import_module(scripted), "PLAYERS", {"worker": f"{scripted}:Worker"})
    fields = stage.settings.Settings.__dataclass_fields__
    if "engine" in fields:  # its flags are another dataclass
        engine = {key: options.pop(key) for key in [*options] if key not in fields}
        options["engine"] = stage.config.EngineConfig(**engine)
    app = stage.server.create_app(stage.settings.Settings(**options), replace(stage.parts.Parts(), **players))
    stage.serve.serve(app, host, port)
