"""The small classifiers keep their promise: at least 95 % of what they never saw, judged on the files that ship."""

import importlib.util
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from torchvision.models import get_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from models import train_classifiers as script

MODELS = Path(__file__).resolve().parents[2] / "models"
SMALL = 2_000_000  # bytes


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small models gain nothing from a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def held_out(folder: str) -> tuple[np.ndarray, np.ndarray]:
    data = np.load(MODELS / folder / "held_out.npz")
    return data["inputs"], data["labels"]


def share(found: Any, right: Any) -> float:
    return float(np.mean([one == other for one, other in zip(found, right, strict=True)]))


def look(name: str, images: list[Any]) -> list[str]:
    """The labels that a torchvision classifier gives to images."""
    config = json.loads((MODELS / name / "config.json").read_text())
    model = get_model(config["architecture"], num_classes=len(config["labels"]), **config["options"])
    model.load_state_dict(load_file(MODELS / name / "model.safetensors"))
    with torch.inference_mode():
        pixels = torch.stack([script.pixels_of(image, config["size"]) for image in images])
        return [config["labels"][place] for place in model.eval()(pixels).argmax(1)]


def test_digits() -> None:
    inputs, labels = held_out("digits")
    found = look("digits", [script.digit_image(image) for image in inputs])
    assert share(found, [str(label) for label in labels]) >= 0.95


def test_shapes() -> None:
    images, labels = zip(*script.draw_shapes(300, seed=2025), strict=True)  # odd: none of these was taught
    assert share(look("shapes", list(images)), labels) >= 0.95


def test_intents() -> None:
    taught, new = (list(script.messages(held_out=out)) for out in (False, True))
    assert not {text for text, _ in taught} & {text for text, _ in new}
    texts, labels = zip(*random.Random(5).sample(new, 300), strict=True)
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "intents")
    model = AutoModelForSequenceClassification.from_pretrained(MODELS / "intents").eval()
    with torch.inference_mode():
        logits = model(**tokenizer(list(texts), padding=True, return_tensors="pt")).logits
    assert share([model.config.id2label[int(place)] for place in logits.argmax(1)], labels) >= 0.95


def test_iris() -> None:
    inputs, labels = held_out("iris")
    session = onnxruntime.InferenceSession(MODELS / "iris" / "model.onnx")
    [scores] = session.run(None, {"features": inputs})
    assert np.allclose(np.asarray(scores).sum(axis=1), 1)
    assert share(np.asarray(scores).argmax(axis=1), labels) >= 0.95


@pytest.fixture
def wine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's model on a stand-in for Triton: a request is its rows, a response its scores."""
    backend = SimpleNamespace(
        get_input_tensor_by_name=lambda request, name: SimpleNamespace(as_numpy=lambda: request),
        Tensor=lambda name, scores: scores,
        InferenceResponse=lambda tensors: tensors[0],
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    spec = importlib.util.spec_from_file_location("wine_model", MODELS / "triton" / "wine" / "1" / "model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize({})
    return model


def test_wine(wine: Any) -> None:
    """The arithmetic of Triton's model; under a real Triton it runs in `tests/stage_04`."""
    inputs, labels = held_out("triton/wine")
    assert share(wine.scores(inputs).argmax(axis=1), labels) >= 0.95


def test_requests_that_share_a_pass_each_get_their_own_rows(wine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, passes, scores = held_out("triton/wine")[0][:6].astype(np.float32), [], wine.scores
    alone = [scores(inputs[:1]), scores(inputs[1:4]), scores(inputs[4:])]
    monkeypatch.setattr(wine, "scores", lambda rows: passes.append(len(rows)) or scores(rows))
    together = wine.execute([inputs[:1], inputs[1:4], inputs[4:]])
    assert passes == [6]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_every_model_is_in_the_registry_and_small() -> None:
    registry = json.loads((MODELS / "models.json").read_text())["models"]
    assert {entry["name"]: entry["id"] for entry in registry if entry["name"] in script.IDS} == script.IDS
    for entry in registry:
        assert {"id", "name", "type", "framework", "version", "description"} <= set(entry)
    for folder in ("digits", "shapes", "intents", "iris", "triton"):
        assert sum(path.stat().st_size for path in (MODELS / folder).rglob("*") if path.is_file()) < SMALL


def test_the_samples_name_a_model_and_its_answer() -> None:
    samples = sorted((MODELS / "samples").glob("*.json"))
    assert {path.stem.partition("-")[0] for path in samples} == set(script.IDS)
    for path in samples:
        body = json.loads(path.read_text())
        assert set(body) == {"model_id", "input_data"}
        assert body["model_id"] == script.IDS[path.stem.partition("-")[0]]
