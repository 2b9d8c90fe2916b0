"""What the API server counts, for people at `/stats` and for Prometheus at `/metrics`. Time comes in as an argument.

The names of the metrics are those of vLLM, so that its dashboards fit. What a core reports is read when somebody asks.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as PromCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .limits import Limits
from .messages import CoreStats
from .output_handler import Choice, Delta

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
CAPACITY = 16
"""rows that one forward pass could carry for nearly the price of one: decoding is memory-bound"""

TOTALS = ("preemptions", "prefix_queries", "prefix_hits", "blocks_free", "blocks_cached", "blocks_used")


class Metrics(Collector):
    """One for each app, with a registry of its own. `cores()` is what they said last, `limits()` what one holds."""

    def __init__(
        self, model: str, cores: Callable[[], dict[int, CoreStats]], limits: Callable[[], Limits | None], now: float
    ) -> None:
        self.model, self.cores, self.limits, self.began = model, cores, limits, now
        self.requests = Counter(completed=0, refused=0, failed=0, hung_up=0)
        self.finished: deque[float] = deque(maxlen=16)
        self.text_seconds = 0.0
        self.registry = CollectorRegistry()
        self.registry.register(self)

        def own(kind: Any, name: str, what: str, **options: Any) -> Any:
            return kind(f"vllm:{name}", what, ["model_name"], registry=self.registry, **options).labels(model)

        self.prompt_tokens = own(PromCounter, "prompt_tokens", "Prompt tokens of requests that got an answer.")
        self.generation_tokens = own(PromCounter, "generation_tokens", "Tokens generated.")
        seconds = {"unit": "seconds", "buckets": SECONDS}
        self.first_token = own(Histogram, "time_to_first_token", "From arrival to the first token.", **seconds)
        self.inter_token = own(Histogram, "inter_token_latency", "From one token to the next.", **seconds)
        self.end_to_end = own(Histogram, "e2e_request_latency", "From arrival to the last token.", **seconds)

    def observe(self, choice: Choice, delta: Delta, arrived: float, now: float) -> None:
        """Count what one step did for one choice."""
        self.generation_tokens.inc(len(delta.token_ids))
        if choice.heard is None:
            self.first_token.observe(now - arrived)
            self.prompt_tokens.inc(len(choice.prompt_ids))
        else:
            self.inter_token.observe((now - choice.heard) / max(1, len(delta.token_ids)))
        choice.heard = now
        if delta.finish_reason:
            self.end_to_end.observe(now - arrived)
            self.finished.append(now)

    def retry_after(self, waiting: int, now: float) -> int:
        """Seconds until as many requests as wait now will have ended, at the pace of the last few; at least 1."""
        if len(self.finished) < 2:
            return 1
        return max(1, math.ceil(waiting * (now - self.finished[0]) / len(self.finished)))

    def snapshot(self, now: float) -> dict[str, Any]:
        """All counters at `now`, as JSON-ready values."""
        cores = self.cores()

        def total(name: str) -> int:
            return sum(getattr(stats, name) for stats in cores.values())

        work = Counter[str]()
        for stats in cores.values():
            work.update(stats.work)
        forwards = work["forward_passes"]
        rows_per_forward = work["rows"] / forwards if forwards else 0.0
        return {
            "requests": dict(self.requests),
            "running": total("running"),
            "queued": total("waiting"),
            **{name: total(name) for name in TOTALS},
            **work,
            "passes": work["steps"],
            "row_steps": work["rows"],
            "positions_attended": work["positions_computed"] - work["positions_padding"],
            "forward_seconds": work["forward_seconds"],
            "step_seconds": step_seconds(work, self.text_seconds),
            "rows_per_forward": rows_per_forward,
            "busy_rows": rows_per_forward / CAPACITY,
            "busy_time": work["forward_seconds"] / (now - self.began) if now > self.began else 0.0,
            "cores": {core: msgspec.to_builtins(stats) for core, stats in cores.items()},
        }

    def collect(self) -> Iterator[Metric]:
        """What Prometheus reads, beside the histograms and counters: what the cores say, and the size of a pool."""
        for kind, name, what, value in FROM_CORES:
            metric = kind(f"vllm:{name}", what, labels=["model_name", "engine"])
            for core, stats in self.cores().items():
                metric.add_metric([self.model, str(core)], value(stats))
            yield metric
        if limits := self.limits():
            info = GaugeMetricFamily("vllm:cache_config_info", "The pool.", labels=["block_size", "num_gpu_blocks"])
            info.add_metric([str(limits.block_size), str(limits.num_blocks)], 1)
            yield info


def step_seconds(work: Mapping[str, float], text: float) -> dict[str, float]:
    """Where the time of all steps went, in the order of a step, and the share that was not the forward pass.

    `text` is the API server's, which makes text of one step's tokens while the core is at the next.
    """
    parts = {
        part: work[f"{part}_seconds"] for part in ("schedule", "metadata", "forward", "sample", "update", "sockets")
    }
    parts["pipe"] = max(0.0, work["run_seconds"] - parts["metadata"] - parts["forward"] - parts["sample"])
    parts["text"] = text
    total = sum(parts.values())
    return {**parts, "not_forward": 1 - parts["forward"] / total if total else 0.0}


def used_share(stats: CoreStats) -> float:
    """Blocks in use, as a share of all."""
    total = stats.blocks_free + stats.blocks_cached + stats.blocks_used
    return stats.blocks_used / total if total else 0.0


FROM_CORES: tuple[tuple[Any, str, str, Callable[[CoreStats], float]], ...] = (
    (GaugeMetricFamily, "num_requests_running", "Requests in the batch.", attrgetter("running")),
    (GaugeMetricFamily, "num_requests_waiting", "Requests that wait for a place in it.", attrgetter("waiting")),
    (GaugeMetricFamily, "kv_cache_usage_perc", "Used blocks as a share of all; 1 is all of them.", used_share),
    (CounterMetricFamily, "prefix_cache_queries", "Prompt tokens looked up.", attrgetter("prefix_queries")),
    (CounterMetricFamily, "prefix_cache_hits", "Of those, tokens found.", attrgetter("prefix_hits")),
    (CounterMetricFamily, "num_preemptions", "Requests that gave their blocks back.", attrgetter("preemptions")),
)
"""what a core's stats are called in Prometheus"""
