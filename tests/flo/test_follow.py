"""The story of one request, told from a synthetic trace; and which request a prompt makes."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from flo.asking import Ask, Reply, pick_ask
from flo.errors import UserError
from flo.follow import Story, Tail, crossed, shorten


def line(name: str, ms: float, pid: int, dur: float | None = None, **args: Any) -> str:
    event = {"name": name, "ts": 1e9 + ms * 1000, "pid": pid, "tid": pid, "args": args}
    return json.dumps(event | ({"ph": "i"} if dur is None else {"ph": "X", "dur": dur * 1000})) + ","


def named(pid: int, process: str, thread: str) -> list[str]:
    names = {"process_name": process, "thread_name": thread}
    events = [{"name": name, "ph": "M", "ts": 0, "args": {"name": value}} for name, value in names.items()]
    return [json.dumps(event | {"pid": pid, "tid": pid}) + "," for event in events]


def told(story: Story, lines: list[str]) -> list[str]:
    return [Text.from_markup(part).plain for text in lines for part in story.tell(text)]


def test_the_way_of_one_request_among_others() -> None:
    story = Story()
    at: Any = {"part": "Engine.generate", "at": "01_x/engine.py:43"}
    assert told(story, ["[", *named(7, "server", "Main"), line("warmed up", 0, 7, request_id="earlier")]) == []
    story.begin()
    lines = told(
        story,
        [
            line("queued", 10, 7, request_id="a", ahead=0, **at),
            line("queued", 11, 7, request_id="b", ahead=1, **at),
            *named(8, "child", "Loop"),
            line("decode", 12.5, 8, 4, request_ids=["b", "a"], **at),
            line("idle", 17, 8, **at),
            line("answered [ok]", 18, 7, request_id="a", text="x", **at),
        ],
    )
    assert story.request_id == "a"
    assert lines == [
        "---- server, process 7 ----",
        "      0.0      +0.0  queued  ahead 0",
        "                     Main: Engine.generate at 01_x/engine.py:43",
        "---- child, process 8, across a process boundary ----",
        "      2.5      +2.5  decode took 4.0 ms  with 1 other",
        "                     Loop: Engine.generate at 01_x/engine.py:43",
        "---- server, process 7, across a process boundary ----",
        '      8.0      +1.5  answered [ok]  text "x"',
        "                     Main: Engine.generate at 01_x/engine.py:43",
    ]


def test_long_values_are_shortened() -> None:
    assert shorten([1, 2]) == "[1,2]"
    assert shorten(list(range(100))).endswith("... (100 in all)")
    assert shorten("é" * 100).endswith("é...")
    assert crossed({"part": "x", "at": "y", "request_id": "z"}) == ""


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[\n{"a"', encoding="utf-8")
    tail = Tail(path)
    assert tail.new_lines() == ["["]
    with path.open("a", encoding="utf-8") as file:
        file.write(": 1},\n")
    assert tail.new_lines() == ['{"a": 1},']
    assert tail.new_lines() == []
    tail.close()


def openapi(**routes: dict[str, Any]) -> dict[str, Any]:
    """Just enough of a server's description: a route, its required fields and their examples."""
    schemas = {name: {"properties": fields, "required": list(fields)} for name, fields in routes.items()}

    def post(name: str) -> dict[str, Any]:
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        return {"post": {"requestBody": {"content": content}}}

    return {"paths": {f"/{name}": post(name) for name in routes}, "components": {"schemas": schemas}}


def test_a_prompt_goes_where_it_can_be_streamed_if_it_can() -> None:
    prompt = {"prompt": {"type": "string"}}
    assert pick_ask(openapi(basic_generate=prompt), "hi") == Ask("/basic_generate", {"prompt": "hi"})
    assert pick_ask(openapi(basic_generate=prompt, generate_stream=prompt), "hi").path == "/generate_stream"
    predict = {"model_id": {"examples": ["sentiment"]}, "input_data": {}}
    assert pick_ask(openapi(predict=predict), "hi").body == {"model_id": "sentiment", "input_data": "hi"}
    with pytest.raises(UserError, match="takes a prompt"):
        pick_ask(openapi(other=prompt), "hi")


def test_an_answer_is_right_only_if_it_is_the_expected_one() -> None:
    assert Reply(200, " 3 4", 0.1).answers(Ask("/", {}, " 3 4"))
    assert not Reply(200, " 3 5", 0.1).answers(Ask("/", {}, " 3 4"))
    assert not Reply(503, "", 0.1, error="dead").answers(Ask("/", {}))
    assert Reply(200, "anything", 0.1).answers(Ask("/", {}))
