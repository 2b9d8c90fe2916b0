"""Stage 01 as it is: the model in a process of its own, on the far side of a pipe."""

import os
from importlib import import_module

stage = "stages.01_single_request"  # no identifier, so no import statement

app = import_module(f"{stage}.server").create_app(import_module(f"{stage}.settings").Settings(os.environ["MODEL"]))
