"""Trains the small classifiers that stages 04 to 06 keep many of: digits, shapes, intents, iris and wine.

Digits, iris and wine come with scikit-learn; shapes are drawn and messages are put together here. One input in five is
held out: what comes from scikit-learn ships as `held_out.npz`, the rest is made anew by whoever wants it. Run it from
anywhere: `python models/train_classifiers.py [NAME ...]` (about two minutes; needs the extra `train`).
"""

import base64
import hashlib
import io
import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from torch.nn.functional import cross_entropy
from torchvision.models import get_model
from transformers import DistilBertConfig, DistilBertForSequenceClassification, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
SEED = 11
REQUIRED = 0.95
"""share of the held-out inputs that must be right, or nothing is written"""
IDS = {
    "digits": "6f1d2c0a-6a43-4d7e-9a55-0c1f3b8e2a01",
    "shapes": "b0a7c9de-13f4-4a0b-8f6d-57e2d94c6b02",
    "intents": "2d94e7f3-8c21-4b6f-a1d0-e98b7c5f4d03",
    "iris": "c83b5a16-f0d7-49e2-b7c4-1a6e2f9d8b04",
    "wine": "91e6d4b8-2b5c-4f3a-8e07-d3c1a5f7e605",
}
"""what clients hold; the same as in `models.json`"""

# Images

SHAPES = ["circle", "square", "triangle", "star", "cross"]
IMAGE_MODELS: dict[str, dict[str, Any]] = {
    "digits": {"architecture": "shufflenet_v2_x0_5", "options": {}, "size": 32, "labels": list("0123456789")},
    "shapes": {
        "architecture": "mobilenet_v3_small",
        "options": {"width_mult": 0.5},
        "size": 64,
        "labels": SHAPES,
    },
}


def draw_shape(rng: random.Random, label: str) -> Image.Image:
    """One shape on a plain ground: place, size, turn and colors are random, and so is a little noise."""
    ground = tuple(rng.randrange(256) for _ in range(3))
    ink = tuple((channel + rng.randrange(90, 167)) % 256 for channel in ground)
    image = Image.new("RGB", (128, 128), ground)
    pen, radius, turn = ImageDraw.Draw(image), rng.uniform(26, 44), rng.uniform(0, 2 * math.pi)
    x, y = (rng.uniform(radius + 2, 126 - radius) for _ in range(2))

    def corners(*radii: float) -> list[tuple[float, float]]:
        angles = [turn + 2 * math.pi * place / len(radii) for place in range(len(radii))]
        return [(x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]

    if label == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)
    elif label == "cross":
        for bar in (0.0, math.pi / 2):
            end = (radius * math.cos(turn + bar), radius * math.sin(turn + bar))
            pen.line((x - end[0], y - end[1], x + end[0], y + end[1]), fill=ink, width=int(radius / 2.2))
    else:
        sides = {"square": [radius] * 4, "triangle": [radius] * 3, "star": [radius, radius * 0.42] * 5}[label]
        pen.polygon(corners(*sides), fill=ink)
    pixels = np.asarray(image.resize((64, 64), Image.Resampling.BILINEAR), np.int16)
    noise = np.random.default_rng(rng.getrandbits(32)).integers(-12, 13, pixels.shape)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def draw_shapes(count: int, seed: int) -> Iterator[tuple[Image.Image, str]]:
    """`count` shapes with their labels; held out are those with an odd seed."""
    rng = random.Random(seed)
    for number in range(count):
        label = SHAPES[number % len(SHAPES)]
        yield draw_shape(rng, label), label


def pixels_of(image: Image.Image, size: int) -> torch.Tensor:
    """What the model sees of an image: [3, size, size] from -1 to 1."""
    small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(small, np.float32)).permute(2, 0, 1) / 127.5 - 1


def digit_image(eight: np.ndarray) -> Image.Image:
    """scikit-learn's eight by eight gray levels, 0 to 16, as an image."""
    return Image.fromarray((eight.reshape(8, 8) * 15.9).astype(np.uint8))


def train_images(name: str, taught: list[Any], held_out: list[Any], steps: int) -> float:
    """Train one torchvision architecture on (image, label) pairs; the share of held-out ones that it gets right."""
    config = IMAGE_MODELS[name]
    model = get_model(config["architecture"], num_classes=len(config["labels"]), **config["options"])
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.1  # MobileNet's 0.01 is for much longer training
    model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def tensors(pairs: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.stack([pixels_of(image, config["size"]) for image, _ in pairs])
        images = images.contiguous(memory_format=torch.channels_last)
        return images, torch.tensor([config["labels"].index(label) for _, label in pairs])

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        images, labels = tensors(taught)
        while True:
            rows = torch.randint(len(labels), (64,))
            shift = [int(amount) for amount in torch.randint(-2, 3, (2,))]
            yield torch.roll(images[rows], shift, (2, 3)), labels[rows]

    fit(model, batches(), steps, lambda model, images: model(images))
    images, labels = tensors(held_out)
    with torch.inference_mode():
        found = model(images).argmax(1)
    right = (found == labels).float().mean().item()
    folder = HERE / name
    require(name, right)
    folder.mkdir(exist_ok=True)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for label in config["labels"][-3:]:
        pairs = zip(held_out, found.tolist(), strict=True)
        image = next(image for (image, true), place in pairs if true == label == config["labels"][place])
        write_sample(name, label, base64_png(image))
    return right


def digits() -> float:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    test = held_out_rows(len(labels))
    pairs = [(digit_image(image), str(label)) for image, label in zip(images, labels, strict=True)]
    taught = [pair for pair, out in zip(pairs, test, strict=True) if not out]
    right = train_images("digits", taught, [pair for pair, out in zip(pairs, test, strict=True) if out], steps=500)
    save_held_out("digits", images[test].astype(np.uint8), labels[test])
    return right


def shapes() -> float:
    return train_images("shapes", list(draw_shapes(5000, SEED * 2)), list(draw_shapes(500, SEED)), steps=700)


# Messages

OPENINGS = ["", "hello,", "hi there,", "please help:", "good morning,", "excuse me,", "quick question:", "dear team,"]
CLOSINGS = ["", "thank you", "please answer soon", "this is urgent", "what can i do", "i am waiting", "any idea"]
THINGS = ["shoes", "laptop", "book", "lamp", "jacket", "phone", "chair", "bicycle", "camera", "kettle"]
CORES = {
    "delivery": [
        "where is my {thing}",
        "my {thing} has not arrived",
        "when will the {thing} be delivered",
        "the courier has lost my {thing}",
        "can you track the parcel with my {thing}",
        "the delivery of my {thing} is late",
        "has the {thing} been shipped yet",
        "the parcel with the {thing} has not been delivered",
        "the courier never arrived with my {thing}",
        "track the delivery of my {thing}",
    ],
    "refund": [
        "i want my money back for the {thing}",
        "how do i return the {thing}",
        "please refund the {thing}",
        "the {thing} is broken and i want to return it",
        "i sent the {thing} back but got no refund",
        "can i exchange the {thing} for another one",
        "i want to send back the {thing}",
        "how do i get a refund for the {thing}",
        "i want to return the {thing} and get my money back",
        "please exchange the broken {thing}",
    ],
    "billing": [
        "i was charged twice for the {thing}",
        "the invoice for the {thing} is wrong",
        "my card was declined when i paid for the {thing}",
        "send me an invoice for the {thing}",
        "why is the price of the {thing} higher on my bill",
        "can i pay for the {thing} in two payments",
        "the payment for the {thing} failed",
        "my card was charged the wrong price for the {thing}",
        "why was i charged for the {thing}",
        "the bill for the {thing} has the wrong price",
    ],
    "account": [
        "i cannot log in to see my order of a {thing}",
        "i forgot my password and my {thing} is in the basket",
        "how do i change my email address before i order the {thing}",
        "delete my account, i only bought a {thing}",
        "someone else uses my account and ordered a {thing}",
        "the password reset does not work and i want to order a {thing}",
        "i cannot change my password to order the {thing}",
        "my login does not work when i order the {thing}",
        "change the email address of my account for the {thing}",
        "i forgot the login of my account with the {thing}",
    ],
}
"""of each list the last two are held out: a phrasing that training never shows, in words that it does"""


def messages(held_out: bool) -> Iterator[tuple[str, str]]:
    """Support messages with the desk that they are for."""
    for label, cores in CORES.items():
        phrasings = cores[-2:] if held_out else cores[:-2]
        for opening, core, thing, closing in itertools.product(OPENINGS, phrasings, THINGS, CLOSINGS):
            yield " ".join(part for part in (opening, core.format(thing=thing), closing) if part), label


def message_tokenizer() -> PreTrainedTokenizerFast:
    """One id a word, lower case; a word that training never showed is [UNK]."""
    words = sorted(
        {word for text, _ in messages(held_out=False) for word in text.replace(",", " ").replace(":", " ").split()}
    )
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(special + words)}, "[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)


def intents() -> float:
    labels, tokenizer = list(CORES), message_tokenizer()
    config = DistilBertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, dim=64, hidden_dim=128, n_layers=2, n_heads=4,
        id2label=dict(enumerate(labels)), label2id={label: place for place, label in enumerate(labels)},
    )  # fmt: skip
    model, rng = DistilBertForSequenceClassification(config), random.Random(SEED)

    def encode(texts: list[str]) -> dict[str, torch.Tensor]:
        encoded = tokenizer(texts, padding=True, return_tensors="pt")
        return {key: encoded[key] for key in ("input_ids", "attention_mask")}

    def batches() -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        taught = list(messages(held_out=False))
        while True:
            rows = rng.sample(taught, 32)
            yield encode([text for text, _ in rows]), torch.tensor([labels.index(label) for _, label in rows])

    fit(model, batches(), 400, lambda model, inputs: model(**inputs).logits)
    test = random.Random(SEED).sample(list(messages(held_out=True)), 500)
    with torch.inference_mode():
        found = model(**encode([text for text, _ in test])).logits.argmax(1).tolist()
    right = float(np.mean([labels[place] == label for place, (_, label) in zip(found, test, strict=True)]))
    require("intents", right)
    model.save_pretrained(HERE / "intents")
    tokenizer.save_pretrained(HERE / "intents")
    for label in labels:
        write_sample("intents", label, next(text for text, found in test if found == label))
    return right


# Tables


def fit_table(features: np.ndarray, labels: np.ndarray, hidden: int) -> list[np.ndarray]:
    """A network with one hidden layer over standardized features: its weights and biases, layer by layer."""
    mean, deviation = features.mean(0), features.std(0)
    inputs, targets = torch.tensor((features - mean) / deviation, dtype=torch.float32), torch.tensor(labels)
    count = int(targets.max()) + 1
    model = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, count)
    )
    fit(model, itertools.repeat((inputs, targets)), 400, lambda model, inputs: model(inputs))
    layers = [parameter.detach().numpy() for parameter in model.parameters()]
    layers[1] = layers[1] - layers[0] @ (mean / deviation).astype(np.float32)  # the standardizing goes into layer one
    layers[0] = layers[0] / deviation.astype(np.float32)
    return [layer.astype(np.float32) for layer in layers]


def table(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Features, labels, which rows are held out, and what the labels are called."""
    from sklearn import datasets

    data: Any = getattr(datasets, f"load_{name}")()
    return (
        data.data.astype(np.float32),
        data.target,
        held_out_rows(len(data.target)),
        [str(n) for n in data.target_names],
    )


def table_scores(layers: list[np.ndarray], features: np.ndarray) -> np.ndarray:
    """What the exported networks compute, up to the softmax."""
    hidden = np.maximum(features @ layers[0].T + layers[1], 0)
    return hidden @ layers[2].T + layers[3]


def finish_table(name: str, layers: list[np.ndarray], folder: Path, wrap: Callable[[list[float]], Any]) -> float:
    features, labels, test, names = table(name)
    right = float((table_scores(layers, features[test]).argmax(1) == labels[test]).mean())
    require(name, right)
    save_held_out(str(folder.relative_to(HERE)), features[test], labels[test])
    for place, label in enumerate(names):
        row = features[test][labels[test] == place][0]
        write_sample(name, label, wrap([round(float(value), 4) for value in row]))
    return right


def iris() -> float:
    from onnx import TensorProto, checker, helper, numpy_helper, save_model

    features, labels, test, names = table("iris")
    layers = fit_table(features[~test], labels[~test], hidden=16)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["features", "weight_0", "bias_0"], ["hidden"], transB=1),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", "weight_1", "bias_1"], ["logits"], transB=1),
            helper.make_node("Softmax", ["logits"], ["scores"], axis=1),
        ],
        "iris",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", features.shape[1]])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", len(names)])],
        [
            numpy_helper.from_array(layer, name)
            for name, layer in zip(("weight_0", "bias_0", "weight_1", "bias_1"), layers, strict=True)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    checker.check_model(model)
    right = finish_table("iris", layers, HERE / "iris", wrap=lambda row: row)
    save_model(model, HERE / "iris" / "model.onnx")
    (HERE / "iris" / "config.json").write_text(json.dumps({"labels": names}) + "\n")
    return right


def wine() -> float:
    """For Triton's Python backend: `triton/wine/1/model.py` does the sum in numpy."""
    features, labels, test, names = table("wine")
    layers = fit_table(features[~test], labels[~test], hidden=16)
    folder = HERE / "triton" / "wine"
    right = finish_table("wine", layers, folder, wrap=lambda row: {"features": row})
    arrays = dict(zip(("weight_0", "bias_0", "weight_1", "bias_1"), layers, strict=True))
    np.savez(folder / "1" / "weights.npz", **arrays)  # pyright: ignore[reportArgumentType]
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names))
    return right


# What they share


def fit(model: torch.nn.Module, batches: Iterator[Any], steps: int, logits: Callable[..., torch.Tensor]) -> None:
    """Train for a number of steps, the learning rate up and down once, and leave the model ready to be asked."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        inputs, targets = next(batches)
        loss = cross_entropy(logits(model, inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()


def held_out_rows(count: int) -> np.ndarray:
    """Which of `count` rows are held out: about one in five, picked by a hash of the row's number."""
    return np.array([hashlib.sha256(f"row {row}".encode()).digest()[0] < 51 for row in range(count)])


def require(name: str, right: float) -> None:
    if right < REQUIRED:
        sys.exit(f"{name}: only {right:.1%} of the held-out inputs are right; nothing was written")


def save_held_out(name: str, inputs: np.ndarray, labels: np.ndarray) -> None:
    (HERE / name).mkdir(parents=True, exist_ok=True)
    np.savez_compressed(HERE / name / "held_out.npz", inputs=inputs, labels=labels)


def base64_png(image: Image.Image) -> str:
    """An image as a request carries it."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def write_sample(name: str, label: str, input_data: Any) -> None:
    """A request body to send with curl; the file's name tells the right answer."""
    folder = HERE / "samples"
    folder.mkdir(exist_ok=True)
    body = json.dumps({"model_id": IDS[name], "input_data": input_data})
    (folder / f"{name}-{label}.json").write_text(body + "\n")


if __name__ == "__main__":
    trainers = {function.__name__: function for function in (digits, shapes, intents, iris, wine)}
    torch.set_num_threads(1)  # models this small lose more by waiting for a second thread than they gain
    for chosen in sys.argv[1:] or trainers:
        torch.manual_seed(SEED)
        print(f"{chosen}: {trainers[chosen]():.1%} of the held-out inputs are right", flush=True)
