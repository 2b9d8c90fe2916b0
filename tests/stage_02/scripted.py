"""Stage 02's scripted worker."""

from tests.scripted import Script
from tests.serving import Stage


class Worker(Script):
    stage = Stage("02_static_batching")
