"""The server opens a path that a client names.

Input that is "an image, or the path of one" is convenient while client and server share a disk.

A user sees: answers about files that only the server should read; with a tolerant decoder and a talkative error
message, the files themselves.

Seen in the wild: an image that may be a path reads any file (vllm-mlx issue 320); vLLM takes local paths only below a
folder that a flag names (pull request 9915). Path traversal is CWE-22; MLflow had it again and again (CVE-2023-1177,
CVE-2023-6909).
"""

from pathlib import Path
from typing import Any

from PIL import Image

from ..parts import WORKERS, Parts
from ..torchvision_worker import TorchVisionWorker

TEST = "tests/stage_04/test_workers.py::test_no_path_of_a_client_is_opened"
MESSAGE = "the server opened a file that a client named"


class OpensPaths(TorchVisionWorker):
    def decode(self, item: Any) -> Image.Image:
        if isinstance(item, str) and len(item) < 1000 and self.may_open(item):
            return Image.open(item).convert("RGB")
        return super().decode(item)

    def may_open(self, path: str) -> bool:
        return Path(path).is_file()


class OpensPathsBelowModels(OpensPaths):
    def may_open(self, path: str) -> bool:
        return path.startswith(f"{self.metadata.root}/") and super().may_open(path)


PARTS = Parts(workers={**WORKERS, "torchvision": OpensPaths})


class CheckThePrefix:
    """Tempting: only paths that begin with the right folder. `folder/../secret` does."""

    PARTS = Parts(workers={**WORKERS, "torchvision": OpensPathsBelowModels})
    TEST = TEST
    MESSAGE = MESSAGE


NAIVE_FIXES = {"check_the_prefix": CheckThePrefix}
