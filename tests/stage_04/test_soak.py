"""Many requests of all kinds, hang-ups and failing loads among them; then: do the counters add up, is anything left?

The short version runs by default. `SOAK=2000 pytest tests/stage_04/test_soak.py` is the long one.
"""

from pathlib import Path

from tests.serving import Stage
from tests.soaking import soak
from tests.stage_04.scripted import Script


def test_nothing_is_lost_and_nothing_is_left(tmp_path: Path) -> None:
    soak(Stage("04_lru_models"), Script(), tmp_path)
