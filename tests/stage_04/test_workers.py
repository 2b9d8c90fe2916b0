"""Each kind of worker alone, with the models that ship."""

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.serving import Stage
from tests.stage_04.scripted import Script, make_residency, metadata, shipped

stage = Stage("04_lru_models")
MODELS = Path(__file__).resolve().parents[2] / "models"
KINDS = {"digits": "torchvision", "shapes": "torchvision", "intents": "transformers", "iris": "onnx"}


def samples(name: str) -> list[tuple[Any, str]]:
    """Inputs that ship, with their right answers."""
    paths = sorted((MODELS / "samples").glob(f"{name}-*.json"))
    return [(json.loads(path.read_text())["input_data"], path.stem.partition("-")[2]) for path in paths]


def loaded(parts: Any, name: str) -> Any:
    worker = parts.workers[KINDS[name]](shipped(name, KINDS[name]), "cpu")
    worker.check()
    worker.load()
    return worker


def png(image: Image.Image, kind: str = "PNG") -> str:
    file = io.BytesIO()
    image.save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def test_every_kind_of_worker_can_be_built_and_loaded(parts: Any) -> None:
    for name in KINDS:
        try:
            worker = loaded(parts, name)
        except AttributeError as exc:
            pytest.fail(f"an attribute was used before it was set: {exc}")
        assert worker.size() > 0
        worker.free()


def test_every_model_answers_under_its_own_name(parts: Any) -> None:
    for name in KINDS:
        worker = loaded(parts, name)
        found = [worker.predict([worker.prepare(item)])[0].label for item, _ in samples(name)]
        assert found == [label for _, label in samples(name)], (
            f"another model answered under this name: {name}: {found}"
        )
        assert len(found) >= 3
        worker.free()


@pytest.mark.parametrize("name", KINDS)
def test_one_pass_for_many_inputs_says_what_many_passes_say(name: str) -> None:
    worker = loaded(stage.parts.Parts(), name)
    rows = [worker.prepare(item) for item, _ in samples(name)]
    together = worker.predict(rows)
    for row, prediction in zip(rows, together, strict=True):
        [alone] = worker.predict([row])
        assert alone.label == prediction.label
        assert alone.score == pytest.approx(prediction.score, abs=1e-5)


def test_no_path_of_a_client_is_opened(parts: Any, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    secret = tmp_path / "secret.png"
    Image.new("RGB", (32, 32)).save(secret)
    model = shipped("digits", "torchvision")
    worker = parts.workers["torchvision"](model, "cpu")
    worker.load()
    worker.metadata = model.model_copy(update={"root": tmp_path / "models"})
    for path in (str(secret), f"{tmp_path / 'models'}/../secret.png", secret.as_uri()):
        try:
            worker.prepare(path)
        except stage.errors.Refused:
            continue
        pytest.fail(f"the server opened a file that a client named: {path}")


@pytest.mark.parametrize(
    ("kind", "modes"), [("PNG", ("L", "RGB", "1", "RGBA", "P", "I;16")), ("JPEG", ("L", "RGB", "1", "CMYK"))]
)
def test_images_of_any_size_and_mode_are_taken(kind: str, modes: tuple[str, ...]) -> None:
    worker = loaded(stage.parts.Parts(), "shapes")
    for mode in modes:
        image = Image.new("L", (7, 300), 200).convert(mode)
        assert worker.prepare(png(image, kind)).shape == (3, 64, 64)


BOMB = png(Image.new("1", (30_000, 30_000)))
BIG = png(Image.new("L", (5_000, 5_000)))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("", "base64"),
        ("not base64!", "base64"),
        (base64.b64encode(b"no image").decode(), "base64"),
        (png(Image.new("RGB", (8, 8)), "GIF"), "PNG or JPEG"),
        (png(Image.effect_noise((64, 64), 50))[:2000], "base64"),
        ("\ud800", "base64"),
        (5, "base64"),
        (None, "base64"),
        ({"image": ""}, "base64"),
        (BIG, "at most 16000000 pixels"),
        (BOMB, "at most 16000000 pixels"),
    ],
    ids=["nothing", "no base64", "no image", "a GIF", "half", "surrogate", "5", "null", "object", "big", "bomb"],
)
def test_what_is_no_image_is_refused(item: Any, expected: str) -> None:
    worker = loaded(stage.parts.Parts(), "digits")
    with pytest.raises(stage.errors.Refused, match=expected):
        worker.prepare(item)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("", "text"),
        (5, "text"),
        (["a"], "text"),
        ("\ud800", "surrogate"),
        ("word " * 100, "102 tokens; must be at most 64"),
    ],
)
def test_what_is_no_text_is_refused(item: Any, expected: str) -> None:
    worker = loaded(stage.parts.Parts(), "intents")
    with pytest.raises(stage.errors.Refused, match=expected):
        worker.prepare(item)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("5.1", "list of 4 numbers"),
        ([1, 2, 3], "of 4 numbers, not of 3"),
        ([1, 2, 3, 4, 5], "of 4 numbers, not of 5"),
        ([1, 2, 3, "4"], "list of 4 numbers"),
        ([1, 2, 3, True], "list of 4 numbers"),
        ([1, 2, 3, None], "list of 4 numbers"),
        ([1, 2, 3, float("nan")], "finite"),
        ([1, 2, 3, float("inf")], "finite"),
        ([1, 2, 3, 10**400], "finite"),
    ],
)
def test_what_is_no_row_is_refused(item: Any, expected: str) -> None:
    worker = loaded(stage.parts.Parts(), "iris")
    with pytest.raises(stage.errors.Refused, match=expected):
        worker.prepare(item)


SHAPES = json.loads((MODELS / "shapes" / "config.json").read_text())


@pytest.mark.parametrize(
    ("framework", "files", "expected"),
    [
        ("torchvision", {}, "no directory"),
        ("torchvision", {"config.json": "{}"}, "no model.safetensors"),
        ("torchvision", {"config.json": "{}", "model.safetensors": ""}, "lacks architecture"),
        ("torchvision", {"config.json": "[]", "model.safetensors": ""}, "not an object"),
        ("torchvision", {"config.json": "{", "model.safetensors": ""}, "config.json"),
        (
            "torchvision",
            {"config.json": '{"architecture": "x", "options": {}, "size": 1, "labels": []}', "model.safetensors": ""},
            "Unknown model x",
        ),
        ("torchvision", {"config.json": json.dumps(SHAPES | {"options": 5}), "model.safetensors": ""}, "mapping"),
        ("torchvision", {"config.json": json.dumps(SHAPES | {"labels": 5}), "model.safetensors": ""}, "int"),
        ("onnx", {}, "no config.json"),
        ("onnx", {"config.json": "{}"}, "no model.onnx"),
        ("onnx", {"config.json": "{}", "model.onnx": ""}, "lacks labels"),
        ("transformers", {"config.json": "{}"}, "no model.safetensors"),
        ("transformers", {"config.json": "{", "model.safetensors": "", "tokenizer.json": ""}, "config.json"),
        (
            "transformers",
            {"config.json": '{"model_type": "none"}', "model.safetensors": "", "tokenizer.json": ""},
            "model type `none`",
        ),
        ("triton", {}, "no url"),
    ],
)
def test_what_cannot_be_loaded_is_found_out_by_looking(
    tmp_path: Path, framework: str, files: dict[str, str], expected: str
) -> None:
    for name, text in files.items():
        (tmp_path / "odd").mkdir(exist_ok=True)
        (tmp_path / "odd" / name).write_text(text)
    residency = make_residency(stage.parts.Parts(), Script())
    with pytest.raises(stage.errors.LoadFailed, match=expected) as caught:
        asyncio.run(residency.validate(metadata("odd", framework, root=tmp_path)))
    assert str(caught.value).startswith("odd cannot be loaded: ")
    assert "\n" not in str(caught.value)
