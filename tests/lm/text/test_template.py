"""Chat templates: rendered as written, and kept within bounds whatever they try."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import MappingProxyType

import pytest

from iron_core.errors import LONGEST, CheckpointError, UsageError
from iron_lm.text import sandbox, template
from iron_lm.text.template import ChatTemplate, find_template

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
    with pytest.raises(UsageError, match=r"model.gguf: .* refuses this conversation: roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}", where="model.gguf").render(HELLO)
    with pytest.raises(UsageError) as caught:
        ChatTemplate("{{ raise_exception('\\x1b[2J' * 400000) }}", where="model.gguf").render(HELLO)
    assert str(caught.value).isprintable() and len(str(caught.value)) < LONGEST


@pytest.mark.parametrize(("message", "says"), [
    ({"role": "user", "content": 5}, r"messages\[1\]: content is a number; legal: a text, or a list of parts"),
    ({"role": "user", "content": None}, r"messages\[1\]: content is None; legal: a text"),
    ({"role": "user", "content": b"Hi"}, r"messages\[1\]: content is a bytes; legal: a text"),
    ({"role": "user", "content": ["Hi"]}, r"messages\[1\]: content is a list; legal: a text, or a list of parts"),
    ({"role": "user"}, r"messages\[1\] has no content; legal: a text"),
    ({"content": "Hi"}, r"messages\[1\] has no role; legal: .*user"),
    ({"role": 1, "content": "Hi"}, r"messages\[1\]: role is a number; legal: .*user"),
    ("Hi", r"messages\[1\] is a text; legal: .*role.*content"),
])  # fmt: skip
def test_a_message_that_is_none_is_refused_by_its_number(message, says):
    """It is the caller's mistake, whatever the template would do with it: the template is not asked."""
    for source in (CHATML, "{% for m in messages %}{{ m.content }}{% endfor %}"):
        with pytest.raises(UsageError, match=says):
            ChatTemplate(source).render([*HELLO, message])


def test_a_message_may_call_tools_or_have_parts():
    """Content is absent beside calls; a list of parts goes to templates that take one, and is told where one does not."""
    calls = [{"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}, {"role": "assistant", "tool_calls": []}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert ChatTemplate("{{ messages[0].tool_calls[0].name }}").render(calls[:1]) == "f"
    assert ChatTemplate("{{ messages[0].content[0].text }}").render(parts) == "Hi"
    with pytest.raises(UsageError, match=r"messages\[1\]: content is a list of parts, at which .*template fails .*; legal: a text"):
        ChatTemplate(CHATML).render(HELLO + parts)
    with pytest.raises(UsageError, match=r"messages\[1\] has no content"):
        ChatTemplate(CHATML).render(calls)


def test_what_a_template_is_given_is_what_json_has():
    """Any mapping is a message; bytes and sets are no values of one."""
    assert ChatTemplate(CHATML).render([MappingProxyType(HELLO[0])]) == ChatTemplate(CHATML).render(HELLO)
    for values, messages in (({"date": {1}}, HELLO), ({}, [HELLO[0] | {"image": b"x"}])):
        with pytest.raises(UsageError, match=r"a chat template takes what JSON has: .*(set|bytes) is not"):
            ChatTemplate(CHATML).render(messages, **values)


@pytest.fixture
def hasty(monkeypatch):
    """Templates of a tenth of the usual budget of CPU: what takes it for ever takes this, too."""
    monkeypatch.setattr(template, "CPU_SECONDS", 0.2)


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
def test_a_hostile_template_is_stopped(hasty, source):
    """In one line, whatever it tries: to run for ever, to fill memory, to reach into Python."""
    with pytest.raises((CheckpointError, UsageError)) as caught:
        text = ChatTemplate(source, where="model.gguf").render(HELLO)
        assert not text, text[:80]
        raise UsageError("an undefined name renders as nothing")
    assert "\n" not in str(caught.value)


def test_a_text_that_is_no_template_is_refused_when_it_is_read():
    with pytest.raises(CheckpointError, match=r"model.gguf: its chat template does not compile"):
        ChatTemplate("{% if %}", where="model.gguf")


LONG = "{% set s = 'a' * 4000000 %}"
LAUGHS = "{% set ns = namespace(l=['a'], m=['a']) %}{% for i in range(40) %}"
LAUGHS += "{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}"
BOMBS = {
    "a filter over copies": LONG + "{{ ([s] * 60000)|map('upper')|list|length }}",
    "a list as text": LONG + "{{ [s] * 60000 }}",
    "sorting long texts": LONG + "{{ ([s[1:] ~ 'b', s[1:] ~ 'c'] * 2000)|sort|length }}",
    "comparing laughs": LAUGHS + "{{ ns.l == ns.m }}",
    "laughs as JSON": LAUGHS + "{{ ns.l|tojson }}",
    "laughs as text": LAUGHS + "{{ ns.l|string }}",
    "adding lists": "{% set l = [0] * 62500 %}{{ ([l] * 62500)|sum(start=[])|length }}",
    "what is in what": "{% set l = range(62500)|map('string')|list %}"
    "{{ range(99999)|map('string')|map('upper')|select('in', l)|list|length }}",
    "digits": "{{ 1.5|round(1000000000, 'ceil') }}",
    "digits, while compiled": "{% if 1.5|round(1000000000, 'ceil') %}{% endif %}",
    "a constant that is folded": "{% autoescape 1.5|round(1000000000, 'ceil') %}{% endautoescape %}",
    "columns": "{{ [1]|slice(300000000)|list|length }}",
    "rows": "{{ [1]|batch(1000000000, 'x')|list|length }}",
    "pieces": "{% set s = 'ab ' * 1300000 %}{% set m = namespace(x=[]) %}"
    "{% for i in range(99) %}{% set m.x = m.x + [s.split(' ')] %}{% endfor %}",
    "a macro of two of itself": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a macro of itself": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "a text set aside": "{% set x %}{% for i in range(99999) %}{{ 'a' * 1000000 }}{% endfor %}{% endset %}",
    "long numbers": "{% set ns = namespace(n=7) %}{% for i in range(20) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"
    "{% for i in range(99999) %}{% set x = ns.n // 777 %}{% endfor %}",
    "bytes of a number": "{{ (1).to_bytes(1000000000, 'big')|length }}",
    "a width": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "a date": "{{ strftime_now('%c' * 1000000) }}",
    "nested parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nested conditions": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "a long chain": "{{ 9" + "*9" * 200000 + " }}",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_template_has_a_budget(hasty, name):
    """Whatever is done inside a filter, an operator or the compiler ends where CPU, memory or length is used up, by name."""
    with pytest.raises(CheckpointError, match=r"model.gguf: its chat template uses up its budget") as caught:
        ChatTemplate(BOMBS[name], where="model.gguf").render(HELLO)
    assert str(caught.value).isprintable() and len(str(caught.value)) <= LONGEST


def test_nothing_is_computed_while_a_template_is_compiled():
    """Not even what is written out: `1 / 0` fails where it is rendered."""
    compiled = ChatTemplate("{% if false %}{{ 1 / 0 }}{{ [1]|batch(2)|list }}{% endif %}fine")
    assert compiled.render(HELLO) == "fine"
    code = sandbox.environment().compile("{{ 'a' * 3 }}{{ ('a'|upper) ~ 'b' }}", raw=True)
    assert "aaa" not in code and "'A'" not in code


# -- the process ----------------------------------------------------------------------------------


def test_one_process_renders_every_turn_and_ends_with_the_template():
    """It is started once; what it held is gone with the object."""
    compiled = ChatTemplate(CHATML)
    process = compiled._process.process
    for _ in range(3):
        compiled.render(HELLO)
    assert compiled._process.process is process and process.poll() is None
    del compiled
    assert process.poll() is not None


def test_a_template_that_was_ended_can_be_rendered_again(hasty):
    """A conversation it cannot take costs its process; the next one gets another."""
    compiled = ChatTemplate("{% for i in range(messages|length * 99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}fine")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="budget"):
            compiled.render(HELLO)
        assert compiled.render([]) == "fine"


def test_the_process_holds_little():
    """It knows jinja2 and nothing of Iron or numpy, and starts none of our own modules by another's name."""
    line = [*template_line(), "-c", "import sys; sys.path += sys.argv[1:]; import sandbox; print(sorted(sys.modules))", *places()]
    names = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    beside = "|".join({file.stem for file in Path(sandbox.__file__).parent.glob("*.py")} - {"sandbox"})
    assert "jinja2" in names and not re.search(rf"'(numpy|iron_\w+|attr|{beside})'", names)


def template_line():
    return [sys.executable, "-I", "-S"]


def places():
    import jinja2
    import markupsafe

    return [str(Path(sandbox.__file__).parent), *(str(Path(m.__file__).parents[1]) for m in (jinja2, markupsafe))]


def test_threads_take_turns():
    """Four threads, one template: every text is its own."""
    compiled, right = ChatTemplate("{{ messages[0].content }}"), []

    def turns(i):
        for n in range(30):
            text = f"{i} {n} " * 1000
            right.append(compiled.render([{"role": "user", "content": text}]) == text)

    threads = [threading.Thread(target=turns, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) == 120 and all(right)


def test_a_fork_has_a_process_of_its_own():
    """Parent and child render at once, and the parent's process outlives the child."""
    compiled = ChatTemplate("{{ messages[0].content }}")
    process = compiled._process.process
    child = os.fork()
    if not child:
        fine = all(compiled.render([{"role": "user", "content": f"child {n}"}]) == f"child {n}" for n in range(20))
        os._exit(0 if fine and compiled._process.process is not process else 1)
    assert all(compiled.render([{"role": "user", "content": f"parent {n}"}]) == f"parent {n}" for n in range(20))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert process.poll() is None and compiled.render([{"role": "user", "content": "still"}]) == "still"


def test_ctrl_c_ends_a_rendering_and_not_the_talk():
    """KeyboardInterrupt arrives while a template runs; the next turn is answered as asked."""
    compiled = ChatTemplate("{% for i in range(messages|length * 99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}fine")
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            compiled.render(HELLO)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert compiled.render([]) == "fine"


# -- where it comes from --------------------------------------------------------------------------


class Folder:
    """A checkpoint of a folder, as far as templates go."""

    kind = "safetensors"

    def __init__(self, path):
        self.path = path


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("chat_template.jinja", b"\xff\xfe", r"chat_template\.jinja: not UTF-8 at byte 0"),
        ("chat_template.jinja", b"{% if %}", r"chat_template\.jinja: its chat template does not compile"),
        ("tokenizer_config.json", b"[" * 100_000, r"tokenizer_config\.json: not JSON"),
        ("tokenizer_config.json", b"[]", r"tokenizer_config\.json: not a JSON object"),
        ("tokenizer_config.json", json.dumps({"chat_template": 7}).encode(), r"tokenizer_config\.json: .* of type int"),
        ("tokenizer_config.json", json.dumps({"chat_template": [{"name": {}, "template": ["a"]}]}).encode(), r"of type list"),
    ],
)
def test_a_template_that_is_none_names_its_file(tmp_path, name, content, says):
    """Bytes that are no text, JSON that is none, numbers and lists where a text should be."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=says) as caught:
        find_template(Folder(tmp_path), None)
    assert str(caught.value).isprintable()
