"""What can be measured. A new scenario is one more file with a `SCENARIO`, and one more name here."""

from . import (
    admission,
    batching,
    budget,
    cores,
    gil,
    long_answers,
    max_delay,
    no_cache,
    open_loop,
    pages,
    peers,
    prefix,
    slots,
    smollm2,
    step_cost,
    step_parts,
    streams,
    triton_batcher,
    users,
    waiting,
    zipf,
)
from .scenario import Scenario

MODULES = (
    *(users, gil, open_loop, slots, no_cache, step_cost, smollm2, batching, max_delay, streams, zipf, pages),
    *(triton_batcher, admission, long_answers, budget, prefix, cores, step_parts, waiting, peers),
)
SCENARIOS: dict[str, Scenario] = {module.SCENARIO.name: module.SCENARIO for module in MODULES}
