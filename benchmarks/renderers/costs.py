"""Figures of what single steps, streams and slots cost: step_cost, no_cache, slots."""

from benchmarks.scenarios import no_cache, slots, step_cost
from benchmarks.sheet import ms, times

from .registry import Result, figure, stamped, the_cell


@figure("step_cost")
def step_cost_table(result: Result, *models: str) -> str:
    """Seconds of one step of stage 03 at 1 to 16 rows; with all models, or with those named."""
    return stamped(step_cost.table(result, *models), result)


@figure("step_cost")
def step_cost_value(result: Result, model: str, rows: str) -> str:
    """One step: `step_cost_value tiny-opt 16`."""
    return ms(step_cost.step(result, model, int(rows)))


@figure("step_cost")
def step_cost_ratio(result: Result, model: str, rows: str) -> str:
    """How many times longer than a step of one row: `step_cost_ratio smollm2 16`."""
    return times(step_cost.step(result, model, int(rows)) / step_cost.step(result, model, 1))


@figure("step_cost")
def step_cost_one_more(result: Result, model: str) -> str:
    """What a row more adds to a step: `step_cost_one_more tiny-opt`."""
    return ms(step_cost.one_more(result, model))


@figure("no_cache")
def no_cache_table(result: Result) -> str:
    """Positions attended and seconds, by the number of new tokens, next to what a cache would feed."""
    return stamped(no_cache.table(result), result)


@figure("no_cache")
def no_cache_value(result: Result, tokens: str, name: str) -> str:
    """One value: `no_cache_value 512 attended`; or `with_cache`, `ratio`, `seconds`, `seconds_per_token`."""
    value = the_cell(result, tokens=tokens)[name]
    if name == "ratio":
        return f"{value:.1f} times"
    return f"{value:,}" if isinstance(value, int) else ms(value)


@figure("no_cache")
def no_cache_ratio(result: Result, more: str, fewer: str) -> str:
    """How many times longer a token takes in a longer stream: `no_cache_ratio 512 20`."""
    one, other = (the_cell(result, tokens=tokens)["seconds_per_token"] for tokens in (more, fewer))
    return times(one / other)


@figure("slots")
def slots_table(result: Result) -> str:
    """How long each of six requests waited for a slot, held it, and held it for nothing."""
    return stamped(slots.table(result), result)


@figure("slots")
def slots_value(result: Result, target: str, name: str, what: str) -> str:
    """One value: `slots_value 02 E waited`, `slots_value 02 A held`, `slots_value 02 A idle`."""
    return ms(the_cell(result, target=target, name=name)[what])
