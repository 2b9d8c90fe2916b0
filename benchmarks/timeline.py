"""Who held a slot when, read from the trace of a server. Pure: events in, intervals out.

A slot is held from the first `scheduled` event that names a sequence to the end of the last pass that had it as a row.
In between it gets a token a step, until it has all; a pass that goes on after that holds the slot for nothing.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

PASSES = ("generate", "forward")
"""spans of the worker: many steps in one pass, or one"""


@dataclass(frozen=True)
class Held:
    """One sequence's time in a slot, in seconds since the first sequence was queued."""

    name: str
    tokens: int
    queued: float
    begin: float
    last_token: float
    end: float
    slot: int = 0

    def cell(self) -> dict[str, Any]:
        """JSON-ready, with the durations that people ask for."""
        waited, idle = self.begin - self.queued, self.end - self.last_token
        return asdict(self) | {"waited": waited, "held": self.end - self.begin, "idle": idle}


def read_trace(text: str) -> list[dict[str, Any]]:
    """The events of a Chrome trace with one event a line, complete or not."""
    lines = (line.strip().rstrip(",") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def timeline(events: Iterable[Mapping[str, Any]], answers: Mapping[str, tuple[str, int]]) -> list[Held]:
    """The intervals of the sequences that were answered with these texts, by name, and with so many tokens.

    The steps of one pass count as equally long. Raises `ValueError` if the trace does not have all of them.
    """
    queued: dict[str, float] = {}
    begun: dict[str, float] = {}
    texts: dict[str, str] = defaultdict(str)
    steps: dict[str, list[float]] = defaultdict(list)
    for event in events:
        args, now = event.get("args", {}), event.get("ts", 0.0) / 1e6
        if event["name"] == "queued":
            queued[args["request_id"]] = now
        elif event["name"] == "scheduled":
            for request_id in args["request_ids"]:
                begun.setdefault(request_id, now)
        elif event["name"] in ("answered", "piece"):
            texts[args["request_id"]] += args["text"]
        elif event["name"] in PASSES:
            count, seconds = args.get("steps", 1), event["dur"] / 1e6
            for request_id in args["request_ids"]:
                steps[request_id] += [now + seconds * (step + 1) / count for step in range(count)]
    ids = {text: request_id for request_id, text in texts.items()}
    if missing := [name for name, (text, _) in answers.items() if text not in ids]:
        raise ValueError(f"the trace has no answer for {', '.join(missing)}")
    zero = min(queued[ids[text]] for text, _ in answers.values())
    held = []
    for name, (text, tokens) in answers.items():
        request_id = ids[text]
        times = sorted(steps[request_id])
        if len(times) < tokens:
            raise ValueError(f"the trace has {len(times)} steps for {name}, which has {tokens} tokens")
        arrived, begin = queued[request_id], begun[request_id]
        held.append(Held(name, tokens, arrived - zero, begin - zero, times[tokens - 1] - zero, times[-1] - zero))
    return in_slots(held)


def in_slots(held: Iterable[Held]) -> list[Held]:
    """Each in the lowest slot that is free when it begins; slots count from 0."""
    free_from: list[float] = []
    placed = []
    for one in sorted(held, key=lambda one: (one.begin, one.name)):
        free = [slot for slot, since in enumerate(free_from) if since <= one.begin]
        slot = free[0] if free else len(free_from)
        free_from[slot : slot + 1] = [one.end]
        placed.append(replace(one, slot=slot))
    return placed
