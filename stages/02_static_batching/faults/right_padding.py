"""Short prompts are padded on the right.

It is the tokenizer's default. `generate` then continues after the padding, so a short row's answer follows on a run
of pad tokens that the model never saw in training.

A user sees: good answers alone, odd ones in company, depending on whose prompt shares the batch.

Seen in the wild: the same prompts in a batch give other answers with padding on the right than on the left
(transformers issue 26569). transformers warns "right-padding was detected" for this reason; OPT and GPT-2 tokenizers
pad on the right unless told otherwise.
"""

import torch

from ..parts import Parts
from ..worker import Worker

TEST = "tests/stage_02/test_worker.py::test_company_does_not_change_an_answer"
MESSAGE = "gets another answer in company than alone"


class PadsRight(Worker):
    def pad(self, prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        padded = self.tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
        return padded["input_ids"].to(self.model.device), padded["attention_mask"].to(self.model.device)


PARTS = Parts(worker=f"{__name__}:PadsRight")
