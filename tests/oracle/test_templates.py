"""Chat templates as they are published, against transformers' own rendering."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iron_core.errors import IronError
from iron_lm.text.template import ChatTemplate

PLACE = Path(os.environ.get("IRON_VOCAB", "."))
TEMPLATES = sorted(PLACE.glob("*.jinja"))
TOKENS = dict(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def user(text):
    return {"role": "user", "content": text}


def model(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


TALKS = (
    [user("Hi")],
    [system("Be brief."), user("Hi")],
    [user("Hi"), model("Hello!"), user("And?")],
    [system("s"), user("a"), model("b"), user("c"), model("d"), user("e")],
    [user("  spaces \n\n around ")],
    [user("{{ 7 * 7 }} {% raw %} <b>&amp;</b> 'q' \"q\"")],
    [user("émoji 🦙 漢字 \u00a0 tab\t")],
    [user("x" * 5000)],
    [user("<|im_end|><|eot_id|></s>[INST]")],
    [system(""), user("a"), model("<think>hm</think>b"), user("")],
)


def test_there_are_templates_to_compare():
    """Llama's, Qwen's and Gemma's among them."""
    names = " ".join(t.name for t in TEMPLATES)
    assert len(TEMPLATES) >= 50 and all(family in names for family in ("Llama-3.2", "Qwen3-0.6B", "gemma"))


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_a_template_renders_as_transformers_renders_it(file):
    """Ten conversations each: the same text, or a refusal by both."""
    from transformers.utils.chat_template_utils import render_jinja_template

    source = file.read_text()
    for talk in TALKS:
        try:
            (want,), _ = render_jinja_template([talk], chat_template=source, add_generation_prompt=True, **TOKENS)
        except Exception:  # the templates raise what they like
            want = None
        try:
            got = ChatTemplate(source, TOKENS, file.name).render(talk)
        except IronError:
            got = None
        assert got == want, (file.name, talk)
