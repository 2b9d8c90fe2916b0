"""Short rows are padded on the right, and their next token is read off the padding.

`logits[:, -1, :]` is the last column of the batch. On the right of a short row that is a pad token, so the model is
asked what comes after padding.

A user sees: good answers alone, nonsense in company with a longer prompt.

Seen in the wild: the code this stage grew from, with OPT, whose tokenizer pads on the right unless told otherwise.
"""

import torch

from ..parts import Parts
from ..worker import Worker

TEST = "tests/stage_03/test_worker.py::test_company_does_not_change_a_token"
MESSAGE = "gets other tokens in company than alone"


class PadsRight(Worker):
    def pad(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        padded = self.tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        return padded["input_ids"], padded["attention_mask"]


PARTS = Parts(worker=f"{__name__}:PadsRight")
