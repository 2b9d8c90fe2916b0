"""What the child of every engine does: take jobs from stdin, and print what came of each, until stdin ends.

A job is a line of JSON, `{"prompts": [[ids], ...], "tokens": [how many new ones for each]}`. The answer is another,
`{"seconds", "outputs"}`. A first line, `{}`, says that the engine is ready. Whatever libraries print goes to stderr.
Needs the standard library alone: peers have environments of their own.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
Generate = Callable[[list[list[int]], list[int]], Any]
"""from prompts and numbers of tokens to the tokens that follow, greedy, stop tokens ignored"""


def answer_jobs(load: Callable[[str, str], Generate]) -> None:
    """Load a model, given its path and its dtype, and serve it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    generate = load(*sys.argv[1:])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        job, began = json.loads(line), time.perf_counter()
        outputs = generate(job["prompts"], job["tokens"])
        print(json.dumps({"seconds": time.perf_counter() - began, "outputs": outputs}), file=answers, flush=True)
    os._exit(0)  # whatever threads an engine has left
