"""What is counted, under a clock of the test's own."""

from typing import Any

from prometheus_client import generate_latest

from tests.serving import Stage

stage = Stage("07_paged_attention")


def metrics(stats: Any = None, num_blocks: int = 33_298) -> Any:
    limits = stage.limits.Limits(1024, 16, num_blocks, 896)
    cores = {0: stats or stage.messages.CoreStats()}
    return stage.metrics.Metrics("a-model", lambda: cores, lambda: limits, 100.0)


def choice() -> Any:
    return stage.output_handler.Choice("r-0", 0, [5, 6, 7], None, None)


def delta(reason: str | None = None) -> Any:
    return stage.output_handler.Delta(0, "a", [5], None, reason)


def test_the_seeds_cache_of_532768_tokens() -> None:
    page = generate_latest(metrics().registry).decode()
    assert 'vllm:cache_config_info{block_size="16",num_gpu_blocks="33298"} 1.0' in page
    assert 33_298 * 16 == 532_768


def test_times_are_measured_from_arrival_and_from_token_to_token() -> None:
    counted, one = metrics(), choice()
    for now, reason in ((102.0, None), (102.5, None), (103.5, "stop")):
        counted.observe(one, delta(reason), arrived=100.5, now=now)
    value = counted.registry.get_sample_value
    model = {"model_name": "a-model"}
    assert value("vllm:time_to_first_token_seconds_sum", model) == 1.5
    assert value("vllm:inter_token_latency_seconds_sum", model) == 1.5
    assert value("vllm:inter_token_latency_seconds_count", model) == 2
    assert value("vllm:e2e_request_latency_seconds_sum", model) == 3.0
    assert value("vllm:prompt_tokens_total", model) == 3
    assert value("vllm:generation_tokens_total", model) == 3


def test_what_cores_report_is_there_for_each() -> None:
    stats = stage.messages.CoreStats(
        running=3, waiting=2, blocks_free=4, blocks_cached=1, blocks_used=5, prefix_queries=9, prefix_hits=8,
        preemptions=7, work={"steps": 4, "forward_passes": 4, "rows": 12, "forward_seconds": 0.5},
    )  # fmt: skip
    counted = metrics(stats)
    labels = {"model_name": "a-model", "engine": "0"}
    expected = {
        "num_requests_running": 3, "num_requests_waiting": 2, "kv_cache_usage_perc": 0.5,
        "prefix_cache_queries_total": 9, "prefix_cache_hits_total": 8, "num_preemptions_total": 7,
    }  # fmt: skip
    for name, value in expected.items():
        assert counted.registry.get_sample_value(f"vllm:{name}", labels) == value
    told = counted.snapshot(102.0)
    assert (told["running"], told["queued"], told["passes"], told["row_steps"]) == (3, 2, 4, 12)
    assert told["rows_per_forward"] == 3
    assert told["busy_time"] == 0.25


def test_where_the_time_of_a_step_goes() -> None:
    """The pipe is what the run took beyond its own parts; half of all is the forward pass."""
    work = {"schedule_seconds": 1.0, "run_seconds": 12.0, "metadata_seconds": 1.0, "forward_seconds": 8.0,
            "sample_seconds": 2.0, "update_seconds": 1.0, "sockets_seconds": 1.0}  # fmt: skip
    counted = metrics(stage.messages.CoreStats(work=work))
    counted.text_seconds = 1.0
    expected = {
        "schedule": 1,
        "metadata": 1,
        "forward": 8,
        "sample": 2,
        "update": 1,
        "sockets": 1,
        "pipe": 1,
        "text": 1,
    }
    assert counted.snapshot(102.0)["step_seconds"] == {**expected, "not_forward": 0.5}
    assert metrics(stage.messages.CoreStats()).snapshot(102.0)["step_seconds"]["not_forward"] == 0


def test_when_to_come_back_is_told_by_the_pace_of_the_last_few() -> None:
    counted = metrics()
    assert counted.retry_after(500, 100.0) == 1
    for now in range(100, 140):
        counted.observe(choice(), delta("stop"), arrived=100.0, now=float(now))
    assert counted.retry_after(0, 140.0) == 1
    assert counted.retry_after(32, 140.0) == 32
    assert counted.retry_after(32, 172.0) == 96, "nothing has ended for a while"
