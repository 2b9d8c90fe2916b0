"""Servers that take turns: each is measured in two halves, the second in reverse order, so that a machine that gets
slower or faster on the way favors nobody."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from .targets import Target

HALVES = 2
Found = TypeVar("Found")


def in_turns(
    targets: Sequence[Target],
    measure: Callable[[Target, int], Coroutine[Any, Any, Found]],
    tell: Callable[[str], object],
) -> dict[str, list[Found]]:
    """What `measure` says of each target, by name, in each half."""
    found: dict[str, list[Found]] = defaultdict(list)
    for half in range(HALVES):
        for target in targets[:: -1 if half else 1]:
            tell(f"{target.name}, half {half + 1} of {HALVES}")
            found[target.name].append(asyncio.run(measure(target, half)))
    return found
