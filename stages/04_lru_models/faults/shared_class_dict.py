"""The record of residents is a class attribute, so everybody has the same one.

A mutable default at class scope exists once, however many objects there are.

A user sees: nothing, as long as a process holds one server. A second one, in a test or under another prefix, finds
models of the first in its slots.

Seen in the wild: one model's settings show up in the next one of its class (transformers pull request 27867, vLLM pull
request 50643). The mutable default is Python's best-known trap, and linters look for it (ruff's RUF012).
"""

from collections import OrderedDict
from typing import Any

from ..lru import Lru
from ..parts import Parts

TEST = "tests/stage_04/test_lru.py::test_two_servers_have_nothing_in_common"
MESSAGE = "one server's model showed up in another"


class SharedByAll(Lru):
    entries: OrderedDict[str, Any] = OrderedDict()  # noqa: RUF012

    def __init__(self, slots: int) -> None:
        self.slots = slots


PARTS = Parts(policy=SharedByAll)
