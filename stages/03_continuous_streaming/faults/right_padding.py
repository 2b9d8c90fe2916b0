"""Short rows are padded on the right, and their next token is read off the padding.

`logits[:, -1, :]` is the last column of the batch. On the right of a short row that is a pad token, so the model is
asked what comes after padding.

A user sees: good answers alone, nonsense in company with a longer prompt.

Seen in the wild: GPT-2's next token, read at `[..., -1, :]` of a batch padded on the right, was not the one it gave
alone, attention mask or not (transformers issue 3167). OPT's tokenizer pads on the right, too, unless told otherwise.
"""

import torch

from ..parts import Parts
from ..worker import Worker

TEST = "tests/stage_03/test_worker.py::test_company_does_not_change_a_token"
MESSAGE = "gets other tokens in company than alone"


class PadsRight(Worker):
    def pad(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        padded = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        return padded["input_ids"].to(self.model.device), padded["attention_mask"].to(self.model.device)


PARTS = Parts(worker=f"{__name__}:PadsRight")
