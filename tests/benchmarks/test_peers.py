"""What the stages are compared with answers correctly, and does what it is compared for."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import with_event_loop_routes
from benchmarks.targets import model_directory
from tests.serving import serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("peer", ["ten_line_server", "model_in_thread"])
def test_a_peer_speaks_the_language_of_the_stages(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", model_directory("tiny-opt"))
    app = with_event_loop_routes(import_module(f"benchmarks.peers.{peer}").app)
    with serving(app) as client:
        body = {"prompt": "Count from 3 to 9:", "max_new_tokens": 50, "ignore_eos": False}
        assert client.post("/basic_generate", json=body).json() == {"generated_text": " 3 4 5 6 7 8 9"}
        longer = client.post("/basic_generate", json=body | {"max_new_tokens": 20, "ignore_eos": True}).json()
        assert longer["generated_text"].startswith(" 3 4 5 6 7 8 9")
        assert len(longer["generated_text"]) > len(" 3 4 5 6 7 8 9")
        assert client.get("/heartbeat").json() == {"status": "alive"}
        late = client.get("/lag", params={"seconds": 0.02}).json()
        assert len(late) >= 1
        assert min(late) > -0.002  # no timer fires early


def test_the_ten_line_server_has_ten_lines_and_a_few() -> None:
    source = (ROOT / "benchmarks" / "peers" / "ten_line_server.py").read_text(encoding="utf-8")
    code = source.rpartition('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 14
