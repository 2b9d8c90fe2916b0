"""The stop token is looked for in the text.

The worker decodes first, which drops special tokens, and then compares what is left with "</s>". It never matches.

A user sees: every stream runs to its length limit, and after the answer comes whatever the model thinks of next. The
model stays pinned all that time, so other models are refused for longer than they need be.

Seen in the wild: a stop condition on decoded text misses what the decoder drops or splits (vLLM issues 3574 and 45636).
"""

from ..parts import WORKERS, Parts
from ..streaming_worker import StreamingWorker

TEST = "tests/stage_06/test_streaming_worker.py::test_a_stream_ends_at_the_stop_token"
MESSAGE = "ran past the stop token"


class StopByText(StreamingWorker):
    def is_stop(self, token_id: int) -> bool:
        return self.tokenizer.decode([token_id], skip_special_tokens=True) == "</s>"


PARTS = Parts(workers={**WORKERS, "causal-lm": StopByText})
