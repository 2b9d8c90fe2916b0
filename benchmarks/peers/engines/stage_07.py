"""Stage 07's engine core in process: schedule -> run -> update, without sockets and without a web server."""

from importlib import import_module

from .jobs import Generate, answer_jobs

stage = "stages.07_paged_attention"  # no identifier, so no import statement


def load(model: str, dtype: str) -> Generate:
    """The core with its default settings."""
    config, executor, loop, messages, parts, trace = (
        import_module(f"{stage}.{name}")
        for name in ("config", "executor", "core_loop", "messages", "core_parts", "trace")
    )
    executor.settle_in()
    settings = config.EngineConfig(model=model, dtype=dtype), parts.CoreParts()
    tracer = trace.Tracer(None, process="engine core")
    core = loop.EngineCore.build(*settings, executor.load(*settings, tracer), tracer)

    def generate(prompts: list[list[int]], tokens: list[int]) -> list[list[int]]:
        outputs: list[list[int]] = [[] for _ in prompts]
        for place, (prompt, count) in enumerate(zip(prompts, tokens, strict=True)):
            sampling = messages.SamplingParams(count, temperature=0.0, ignore_eos=True)
            if refused := core.handle(messages.Add(str(place), prompt, sampling, core.clock())):
                raise RuntimeError(refused[0].error)
        busy = True
        while busy:
            busy, made = core.turn()
            for output in made:
                if output.error:
                    raise RuntimeError(output.error)
                outputs[int(output.request_id)] += output.token_ids
        return outputs

    return generate


if __name__ == "__main__":
    answer_jobs(load)
