"""Stage 07 with static admission: one part is swapped, the scheduler, by its import path."""

import os
from importlib import import_module
from typing import Any

from .static_scheduler import SETTINGS, StaticScheduler

stage = "stages.07_paged_attention"  # no identifier, so no import statement

config: Any = import_module(f"{stage}.config").EngineConfig(os.environ["MODEL"], **SETTINGS)
settings: Any = import_module(f"{stage}.settings").Settings(config)
scheduler = f"{StaticScheduler.__module__}:{StaticScheduler.__name__}"
app = import_module(f"{stage}.server").create_app(settings, import_module(f"{stage}.parts").Parts(scheduler=scheduler))
