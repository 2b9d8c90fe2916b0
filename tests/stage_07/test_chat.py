"""From messages to ids: the model's own template, in a sandbox, as transformers renders it."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.conftest import ROOT
from tests.serving import Stage
from tests.stage_07.apps import scripted

stage = Stage("07_paged_attention")
CHATML = (
    "{% for message in messages %}\n"
    "    {%- if message.role == 'robot' %}{{ raise_exception('no robots') }}{% endif %}\n"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + eos_token + '\n' }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MESSAGES = [
    {"role": "system", "content": "Count."},
    {"role": "user", "content": "Count from 3 to 9: naïve 推論"},
    {"role": "assistant", "content": " 3"},
]


def model_with(tmp_path: Path, template: Any, as_file: bool = False) -> str:
    """The shipped tokenizer with another template, or none."""
    shutil.copytree(ROOT / "models" / "tiny-opt", tmp_path / "model", ignore=shutil.ignore_patterns("*.jinja"))
    if as_file:
        (tmp_path / "model" / "chat_template.jinja").write_text(template)
    elif template:
        path = tmp_path / "model" / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return str(tmp_path / "model")


def ids(model: str, messages: Any) -> list[int]:
    template = stage.chat.ChatTemplate(model, stage.tokenization.Tokenizer(model))
    return asyncio.run(template.prompt_ids(messages))


@pytest.mark.parametrize("as_file", [False, True])
def test_it_renders_what_transformers_renders(tmp_path: Path, as_file: bool) -> None:
    model = model_with(tmp_path, CHATML, as_file)
    theirs: Any = AutoTokenizer.from_pretrained(model)
    assert ids(model, MESSAGES) == theirs.apply_chat_template(
        MESSAGES, add_generation_prompt=True, tokenize=True, return_dict=False
    )


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ messages[0].content }}"}]
    model = model_with(tmp_path, several)
    expected = stage.tokenization.Tokenizer(model).rust.encode("ab").ids
    assert ids(model, [{"role": "user", "content": "ab"}]) == expected


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (CHATML, "no robots"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 1 / 0 }}", "division"),
    ],
)
def test_a_template_may_refuse_and_may_not_escape(tmp_path: Path, template: str, said: str) -> None:
    with pytest.raises(stage.errors.Refused, match=said):
        ids(model_with(tmp_path, template), [{"role": "robot", "content": "a"}])


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    with scripted(model=model_with(tmp_path, None)) as client:
        messages = [{"role": "user", "content": "a"}]
        answer = client.post("/v1/chat/completions", json={"messages": messages})
        assert answer.status_code == 400
        assert "no chat template" in answer.json()["error"]["message"]
        assert client.post("/v1/completions", json={"prompt": "ab"}).json()["choices"][0]["text"] == "ab"
