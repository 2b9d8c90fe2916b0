"""The model's own count of what it was given: a hook on its forward pass, and what `/stats` has to say of it."""

import threading
from typing import Any

CAPACITY = 16
"""rows that count as wholly busy"""
TIMES = {"queue_seconds", "forward_seconds", "busy_time"}
"""counters that are no counts"""


class Forwards:
    """Records the forward passes of a model while the block lasts."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.rows: list[int] = []
        self.positions: list[int] = []
        self.padding: list[int] = []

    def __enter__(self) -> "Forwards":
        self._hook = self.model.register_forward_hook(self._count, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _count(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any], __: Any) -> None:
        ids, mask = args[0] if args else kwargs["input_ids"], kwargs.get("attention_mask")
        rows, columns = ids.shape
        self.rows.append(rows)
        self.positions.append(ids.numel())
        self.padding.append(0 if mask is None else int((mask[:, -columns:] == 0).sum()))

    def stats(self, passes: int, rows_per_pass: float, idle: int = 0, **requests: int) -> dict[str, Any]:
        """All that `/stats` must say, times aside; the model itself knows nothing of passes and requests."""
        steps, rows, positions, padding = len(self.rows), sum(self.rows), sum(self.positions), sum(self.padding)
        return {
            "requests": {"completed": 0, "refused": 0, "failed": 0, "hung_up": 0, **requests},
            "passes": passes,
            "rows_per_pass": rows_per_pass,
            "forward_passes": steps,
            "row_steps": rows,
            "rows_per_forward": rows / steps,
            "positions_computed": positions,
            "positions_padding": padding,
            "positions_attended": positions - padding,
            "idle_row_steps": idle,
            "busy_rows": rows / steps / CAPACITY,
            "running": 0,
            "queued": 0,
        }


class InProcess:
    """An executor that runs a worker right here, one batch at a time as a child does."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.turn = threading.Lock()
        self.ready = threading.Event()
        self.failure = None

    def start(self) -> None:
        self.ready.set()

    def close(self) -> None:
        self.ready.clear()

    def execute(self, batch: list[Any]) -> Any:
        with self.turn:
            return self.worker.execute(batch)


def counts(snapshot: dict[str, Any]) -> dict[str, Any]:
    """What `/stats` says, without the times, which must all have been counted."""
    assert all(snapshot[name] > 0 for name in TIMES), snapshot
    return {name: value for name, value in snapshot.items() if name not in TIMES}
