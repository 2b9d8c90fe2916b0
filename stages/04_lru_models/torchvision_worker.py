"""Image classifiers of any torchvision architecture, from a directory or with torchvision's own weights.

Images come inside the request, as base64. Nothing here opens a path or an address that a client names.
"""

import base64
import binascii
import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision.models import get_model, get_model_weights, list_models

from .errors import Refused
from .worker import Prediction, Worker, best

MAX_PIXELS = 16_000_000
"""a small file can claim a gigantic image (a decompression bomb); beyond this it is not unpacked"""


class TorchVisionWorker(Worker):
    """A PNG or JPEG in, label out."""

    def check(self) -> None:
        if self.metadata.directory.is_dir():
            config = self.config("model.safetensors")
            if missing := {"architecture", "options", "size", "labels"} - set(config):
                raise self.failed(f"config.json lacks {', '.join(sorted(missing))}")
            with torch.device("meta"):  # takes no memory
                build(config)
        elif self.metadata.name not in list_models():
            raise self.failed(f"no directory {self.metadata.directory}, and torchvision has no such model")

    def load(self) -> None:
        self.transform: Any = self.pixels
        if self.metadata.directory.is_dir():
            config = self.config()
            self.size_in, self.labels, model = config["size"], config["labels"], build(config)
            model.load_state_dict(load_file(self.metadata.directory / "model.safetensors"))
        else:
            weights = next(iter(get_model_weights(self.metadata.name)))
            self.transform, self.labels = weights.transforms(), weights.meta["categories"]
            model = get_model(self.metadata.name, weights=weights)
        self.model = model.to(self.device).eval()

    def prepare(self, item: Any) -> torch.Tensor:
        """[3, height, width]"""
        return self.transform(self.decode(item))

    def decode(self, item: Any) -> Image.Image:
        """The image in a base64 text."""
        if not isinstance(item, str):
            raise Refused("must be an image: a PNG or JPEG as a base64 text")
        try:
            image = Image.open(io.BytesIO(base64.b64decode(item, validate=True)), formats=("PNG", "JPEG"))
            if image.width * image.height > MAX_PIXELS:
                raise Refused(f"an image of {image.width} x {image.height}; must be at most {MAX_PIXELS} pixels")
            return image.convert("RGB")
        except Image.DecompressionBombError as exc:
            raise Refused(f"must be an image of at most {MAX_PIXELS} pixels") from exc
        except (binascii.Error, OSError, SyntaxError, ValueError) as exc:
            raise Refused("must be an image: a PNG or JPEG as a base64 text") from exc

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """[3, size, size], from -1 to 1."""
        small = image.resize((self.size_in, self.size_in), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(small, np.float32)).permute(2, 0, 1) / 127.5 - 1

    @torch.inference_mode()
    def predict(self, rows: list[torch.Tensor]) -> list[Prediction]:
        return best(self.labels, self.model(torch.stack(rows).to(self.device)).softmax(1).tolist())


def build(config: dict[str, Any]) -> torch.nn.Module:
    """The network that a directory's `config.json` describes, without its weights."""
    return get_model(config["architecture"], num_classes=len(config["labels"]), **config["options"])
