"""The Triton worker against a fake, for what a real server cannot be made to show on demand."""

import ssl
from typing import Any

import pytest

from tests.serving import Stage
from tests.stage_04.fake_triton import FakeTriton, fake_triton
from tests.stage_04.scripted import metadata

stage = Stage("04_lru_models")


def worker_for(parts: Any, fake: FakeTriton, name: str = "wine") -> Any:
    return parts.workers["triton"](metadata(name, "triton", url=fake.url), "cpu")


def test_a_freed_model_is_unloaded_whoever_still_holds_the_worker(parts: Any) -> None:
    with fake_triton() as fake:
        worker = worker_for(parts, fake)
        worker.check()
        worker.load()
        assert fake.state == "READY"
        worker.free()
        assert fake.state != "READY", "the Triton server still had the model after its eviction"


def test_free_returns_when_the_index_says_unloaded(parts: Any) -> None:
    with fake_triton() as fake:
        worker = worker_for(parts, fake)
        worker.load()
        worker.free()
        assert fake.state == "UNAVAILABLE", "the next load would have begun while Triton was still unloading"


def test_rows_go_in_one_request_and_labels_come_back() -> None:
    with fake_triton() as fake:
        worker = worker_for(stage.parts.Parts(), fake)
        worker.load()
        rows = [worker.prepare({"features": [1, 2.5]}) for _ in range(3)]
        assert worker.predict(rows) == [stage.worker.Prediction("red", 0.75)] * 3
        assert fake.rows == [[3, 2]]


def test_a_pass_does_not_read_the_certificates_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_again(*_: object, **__: object) -> None:
        raise AssertionError("certificates were read for a single pass")

    with fake_triton() as fake:
        worker = worker_for(stage.parts.Parts(), fake)
        worker.load()
        monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", read_again)
        worker.predict([worker.prepare({"features": [1, 2.5]})])
        assert fake.rows == [[1, 2]]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ([1, 2], r"an object of the tensors features \[2\]"),
        ({"feature": [1, 2]}, r"features \[2\]"),
        ({"features": [1, 2], "more": [1]}, r"features \[2\]"),
        ({"features": [1]}, r"features \[2\] must be a list of 2 numbers, not of 1"),
        ({"features": [1, "2"]}, r"must be a list of 2 numbers"),
        ({"features": [1, float("nan")]}, "finite"),
        ({"features": [1, 10**400]}, "finite"),
    ],
)
def test_wrong_names_and_shapes_are_refused_with_what_was_expected(item: Any, expected: str) -> None:
    with fake_triton() as fake:
        worker = worker_for(stage.parts.Parts(), fake)
        worker.load()
        with pytest.raises(stage.errors.Refused, match=expected):
            worker.prepare(item)
        assert fake.rows == []


def test_a_model_that_triton_does_not_have_is_found_out_before_loading() -> None:
    with fake_triton() as fake, pytest.raises(stage.errors.LoadFailed, match="beer"):
        worker_for(stage.parts.Parts(), fake, "beer").check()
    with pytest.raises(stage.errors.WorkerLost):
        worker_for(stage.parts.Parts(), fake).check()  # the server has gone, too
