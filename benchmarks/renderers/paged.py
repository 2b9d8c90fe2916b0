"""Figures of stage 07, what it gains and where its time goes (seven scenarios)."""

from benchmarks.scenarios import admission, budget, cores, long_answers, prefix, step_parts, waiting
from benchmarks.sheet import ms, times

from .registry import Result, figure, stamped, the_cell


@figure("admission")
def admission_table(result: Result) -> str:
    """Tokens per second and latency with static and with continuous admission."""
    return stamped(admission.table(result), result)


@figure("admission")
def admission_ratio(result: Result) -> str:
    """How many times the tokens per second of static admission continuous admission gives."""
    return times(admission.ratio(result))


@figure("long_answers")
def long_answers_table(result: Result) -> str:
    """Tokens per second of the ten-line server and of stage 07, when everybody wants 256 tokens."""
    return stamped(long_answers.table(result), result)


@figure("long_answers")
def long_answers_ratio(result: Result, number: str) -> str:
    """How many times the ten-line server's tokens per second stage 07 gives: `long_answers_ratio 50`."""
    ratio = long_answers.ratio(result, int(number))
    return "any number of times" if ratio is None else times(ratio)


@figure("budget")
def budget_table(result: Result) -> str:
    """Streams at once and tokens per second of stages 06 and 07, in the same memory for the cache."""
    return stamped(budget.table(result), result)


@figure("budget")
def budget_ratio(result: Result, name: str = "at_once") -> str:
    """How many times stage 06's value stage 07's is: `budget_ratio at_once`, `budget_ratio tokens_per_second`."""
    return times(budget.ratio(result, name))


@figure("prefix")
def prefix_table(result: Result) -> str:
    """Time to the first text of two requests with the same prefix, with a prefix cache and without."""
    return stamped(prefix.table(result), result)


@figure("prefix")
def prefix_share(result: Result) -> str:
    """How much of the first request's time to the first text the second one needs."""
    return f"{the_cell(result, target=prefix.CACHED)['ratio']:.0%}"


@figure("cores")
def cores_table(result: Result) -> str:
    """Tokens per second of two engine cores and of one, with equal threads in all, and how they share the work."""
    return stamped(cores.table(result), result)


@figure("cores")
def cores_ratio(result: Result) -> str:
    """Two cores' tokens per second, in times of one core's."""
    return f"{cores.ratio(result):.2f} times"


@figure("step_parts")
def step_parts_table(result: Result) -> str:
    """What a decode step takes, and its parts."""
    return stamped(step_parts.table(result), result)


@figure("step_parts")
def step_parts_value(result: Result, dtype: str, rows: str, part: str) -> str:
    """What a part takes: `step_parts_value bfloat16 16 matrices`, or `step`, `forward`, `attention`."""
    return ms(the_cell(result, dtype=dtype, rows=rows)[part])


@figure("step_parts")
def step_parts_outside(result: Result, dtype: str, rows: str) -> str:
    """The share of the time under load that is not the forward pass: `step_parts_outside bfloat16 16`."""
    return f"{1 - the_cell(result, dtype=dtype, rows=rows)['outside']['forward']:.1%}"


@figure("waiting")
def waiting_table(result: Result) -> str:
    """A step of the scheduler, by how many run and how many wait."""
    return stamped(waiting.table(result), result)


@figure("waiting")
def waiting_ratio(result: Result, running: str) -> str:
    """How many times longer a step takes with the longest queue than with the shortest: `waiting_ratio 16`."""
    return times(waiting.ratio(result, int(running)))
