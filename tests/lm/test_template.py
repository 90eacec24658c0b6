"""Chat templates: rendered as written, and kept within bounds whatever they try."""

from __future__ import annotations

import pytest

from iron_core.errors import CheckpointError, UsageError
from iron_lm.template import ChatTemplate

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "Hi"}]


def test_a_conversation_becomes_the_text_the_model_was_trained_on():
    assert ChatTemplate(CHATML).render(HELLO) == (
        "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ChatTemplate(CHATML).render(HELLO, add_generation_prompt=False).endswith("Hi<|im_end|>\n")


def test_what_templates_in_the_wild_use():
    """Special tokens, namespaces, macros, loop controls, slices, filters, `generation`, strftime_now, tojson."""
    source = (
        "{{ bos_token }}{% set ns = namespace(n=0) %}{% macro say(m) %}[{{ m.role | upper }}]{{ m.content | trim }}{% endmacro %}"
        "{% for m in messages[:3] %}{% if loop.index > 2 %}{% break %}{% endif %}{% set ns.n = ns.n + 1 %}"
        "{% generation %}{{ say(m) ~ ns.n }}{% endgeneration %}{% endfor %}"
        "{{ {'b': [1, 'é']} | tojson }}{{ 'abc'.replace('b', '-') }}{{ strftime_now('%Y') | length }}"
    )
    messages = [{"role": "user", "content": " a "}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(messages) == '<s>[USER]a1[ASSISTANT]b2{"b": [1, "é"]}a-c4'


def test_a_template_may_refuse_a_conversation():
    with pytest.raises(UsageError, match="refuses this conversation: roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages|attr('__class__') }}",
        "{{ self.__init__.__globals__ }}",
        "{{ 'a' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'.zfill(1000000000) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 2 ** 10000000 }}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(n=7) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n * ns.n %}{% endfor %}{{ ns.n }}",
        "{{ ('a' * 2000000)|replace('a', 'bbbbbbbbbb') }}",
        "{{ ('a' * 2000000).replace('a', 'bbbbbbbbbb') }}",
        "{{ range(9000)|join('x' * 2000) }}",
        "{{ ('x' * 2000).join(['a'] * 9000) }}",
        "{{ messages|tojson(indent=100000000) }}",
        "{% for i in range(5000) %}{{ 'x' * 100000 }}{% endfor %}",
        "{{ messages|center(1000000000) }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_hostile_template_is_stopped(source):
    """In one line, whatever it tries: to run for ever, to fill memory, to reach into Python."""
    with pytest.raises((CheckpointError, UsageError)) as caught:
        text = ChatTemplate(source, where="model.gguf").render(HELLO)
        assert not text, text[:80]
        raise UsageError("an undefined name renders as nothing")
    assert "\n" not in str(caught.value)


def test_a_text_that_is_no_template_is_refused_when_it_is_read():
    with pytest.raises(CheckpointError, match=r"model.gguf: its chat template does not compile"):
        ChatTemplate("{% if %}", where="model.gguf")
