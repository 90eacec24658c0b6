"""Answers held by a schema, a grammar or a regular expression: whatever the logits are, they are of that form."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core.errors import UsageError
from iron_llama.model import Llama
from iron_lm.generation.grammar import Constraint, Grammar, Vocabulary
from iron_lm.generation.sampler import Sampler
from iron_lm.runner import main as run

pytest.importorskip("llguidance", reason="llguidance, which makes the masks, is not installed")

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


class Bytes:
    """A tokenizer of bytes and a few longer pieces; id 0 ends an answer, id 1 shows nothing. `own`: what its `encode_plain` gives."""

    pieces = [None, None, *(bytes([byte]) for byte in range(256)), b'{"', b'": ', "é".encode(), b"ab"]
    stop: tuple[int, ...] = (0,)

    def __init__(self, own: list[int] | None = None) -> None:
        self.own = own
        self.spelling = self

    def spell(self, id: int, first: bool) -> bytes | None:
        return self.pieces[id] if id < len(self.pieces) else None

    def token(self, id: int) -> str | None:
        return f"<{id}>" if id < len(self.pieces) else None

    def encode_plain(self, text: str) -> list[int]:
        return [2 + byte for byte in text.encode()] if self.own is None else self.own


def answer(grammar: Grammar, seed: int, most: int = 400) -> bytes:
    """What random logits say."""
    constraint, sampler, rng, said = grammar.start(), Sampler(1.0, seed=seed), np.random.default_rng(seed), b""
    for position in range(most):
        constraint.look()
        token = sampler.choose(rng.standard_normal(270).astype(np.float32), position, [], constraint.allowed())
        constraint.take(token)
        piece = Bytes.pieces[token]
        if piece is None or constraint.ended:
            return said + (piece or b"")
        said += piece
    raise AssertionError(f"no end after {most} tokens: {said[:200]!r}")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(Bytes(), 270)  # type: ignore[arg-type]


def test_json_of_a_schema(vocabulary: Vocabulary) -> None:
    """Whatever is drawn is JSON that the schema allows, with tokens across its borders."""
    grammar = Grammar(vocabulary, "schema", SCHEMA)
    for seed in range(40):
        found = json.loads(answer(grammar, seed))
        assert list(found) == ["name", "age"] and len(found["name"]) <= 4 and found["age"] in range(121)


def test_a_text_of_a_grammar(vocabulary: Vocabulary) -> None:
    """GBNF and Lark say the same; a regular expression is matched whole."""
    gbnf = Grammar(vocabulary, "grammar", 'root ::= ("ab" | "é")+ "."')
    lark = Grammar(vocabulary, "grammar", 'start: ("ab" | "é")+ "."')
    regex = Grammar(vocabulary, "regex", r"(ab|é)+\.")
    for seed in range(20):
        for grammar in (gbnf, lark, regex):
            assert re.fullmatch(r"(ab|é)+\.", answer(grammar, seed).decode())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_has_masks_of_its_own(vocabulary: Vocabulary) -> None:
    """A child goes on with an answer whose mask its parent had begun, and begins others; the parent's is as it was."""
    grammar = Grammar(vocabulary, "regex", "[abc]+")
    begun = grammar.start()
    begun.look()
    wanted = grammar.start().allowed()
    child = os.fork()
    if not child:
        signal.alarm(60)  # instead of waiting for ever
        fine = False
        try:
            fine = (begun.allowed() == wanted).all() and (grammar.start().allowed() == wanted).all()
        finally:
            os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (begun.allowed() == wanted).all()


def test_the_mask_is_what_may_come(vocabulary: Vocabulary) -> None:
    """Every piece that goes on, an end where it may end, no id that shows nothing and none beyond the tokenizer's."""
    constraint = Grammar(vocabulary, "regex", "(ab?)*").start()
    assert [*np.flatnonzero(constraint.allowed())] == [0, 2 + ord("a"), 261]
    constraint.take(2 + ord("a"))
    assert [*np.flatnonzero(constraint.allowed())] == [0, 2 + ord("a"), 2 + ord("b"), 261]
    assert not constraint.ended
    constraint = Grammar(vocabulary, "regex", "a").start()
    constraint.take(2 + ord("a"))
    assert constraint.ended


FORMS = {
    "schema": ("schema", SCHEMA),
    "open": ("schema", True),
    "words": ("schema", {"enum": ["hello world", "hello there", 12345]}),
    "regex": ("regex", r"(ab|é)+\.x{2,5}yes please"),
    "grammar": ("grammar", 'root ::= ("yes" | "no") " " [a-z]+ " because it is so"'),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_sure_may_come(vocabulary: Vocabulary, form: str) -> None:
    """Of every token, wherever random answers are: what is said of one without a mask is what the mask has, or nothing is."""
    sure = 0
    for seed in range(6):
        rng, constraint = np.random.default_rng(seed), Grammar(vocabulary, *FORMS[form]).start()
        for _ in range(60):
            allowed = constraint.allowed()
            said = [token for token in range(262) if constraint.sure(token)]
            assert allowed[said].all()
            sure += len(said)
            constraint.take(int(rng.choice(np.flatnonzero(allowed))))
            if constraint.ended:
                break
    assert sure > 10


def test_a_greedy_answer_is_the_same_without_masks(model: iron_lm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the most likely token is one that surely may come no mask is made, and the answer is what all masks give."""
    schema = {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 4, "maxItems": 6}
    made, real = [], Constraint.allowed
    monkeypatch.setattr(Constraint, "allowed", lambda self: (made.append(1), real(self))[1])
    said = list(model.generate("a", 90, schema=schema))
    few = len(made)
    monkeypatch.setattr(Constraint, "sure", lambda self, token: False)
    assert list(model.generate("a", 90, schema=schema)) == said
    assert 0 < few < len(made) - few


@pytest.mark.parametrize("own", [None, [5, 5, 5], [999], []])
def test_a_forced_text_is_spelled_whatever_the_tokenizer_makes_of_it(own: list[int] | None) -> None:
    """Its own ids where they spell the text, else the longest pieces; the answer is the text."""
    grammar = Grammar(Vocabulary(Bytes(own), 270), "regex", "abcé€")  # type: ignore[arg-type]
    assert {answer(grammar, seed).decode() for seed in range(5)} == {"abcé€"}


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("schema", {"type": 5}, "schema: type must be a string or array"),
        ("schema", '{"type": ', "schema: Expecting value"),
        ("schema", "[1]", "schema: a JSON schema is an object, or true"),
        ("schema", 3, "schema: a JSON schema is an object, or true"),
        ("schema", {"a": {1}}, "schema: Object of type set is not JSON"),
        ("schema", {"$ref": "http://nowhere.invalid/x"}, "schema: Resource"),
        ("schema", {"allOf": [{"type": "string"}, {"type": "null"}]}, "schema: Unsatisfiable"),
        ("schema", {"not": {"type": "string"}}, "schema: Unimplemented keys"),
        ("schema", "[" * 100_000, "schema: "),
        ("grammar", "root ::= (", "grammar: Failed to convert the grammar from GBNF"),
        ("grammar", "", "grammar: "),
        ("grammar", "start: nothing", "grammar: at 1(8): unknown name"),
        ("regex", "(", "regex: at 1(8): invalid regex"),
        ("regex", 3, "regex: it is no text"),
    ],
)
def test_what_is_no_form_is_refused_in_one_line(vocabulary: Vocabulary, kind: str, given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        Grammar(vocabulary, kind, given)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_a_bias_that_forbids_all_that_may_come_is_said(vocabulary: Vocabulary) -> None:
    """Greedy or drawn; no token is made up."""
    allowed = Grammar(vocabulary, "regex", "x").start().allowed()
    for temperature in (0.0, 1.0):
        with pytest.raises(UsageError, match="logit_bias forbids every token that may come next"):
            Sampler(temperature, logit_bias={2 + ord("x"): -np.inf}).choose(np.zeros(270, np.float32), 0, [], allowed)


def test_a_tokenizer_that_names_no_end_is_refused() -> None:
    class Endless(Bytes):
        stop = ()

    with pytest.raises(UsageError, match="need a tokenizer that says which id ends one"):
        Vocabulary(Endless(), 270)  # type: ignore[arg-type]


def test_a_missing_library_is_said_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UsageError, match=r"take the package llguidance; install it with: pip install 'iron-lm\[grammar\]'"):
        Vocabulary(Bytes(), 270)  # type: ignore[arg-type]


# -- with a model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> Path:
    """The tiny Llama, with a tokenizer of bytes that ends at an id, and a chat template."""
    ended = {"tokenizer.chat_template": TEMPLATE, "tokenizer.ggml.eos_token_id": 0}
    return Path(tiny_gguf(metadata=byte_metadata | ended))


@pytest.fixture(scope="module")
def model(file: Path) -> iron_lm.Model:
    return iron_lm.load("llama", file, max_seq_len=256)


@pytest.mark.parametrize("rules", [{}, dict(temperature=1.5, seed=3), dict(temperature=1.0, top_p=0.9, repetition_penalty=1.2)])
def test_a_models_answers_are_of_the_form(model: iron_lm.Model, rules: dict[str, Any]) -> None:
    """Continued or in a conversation, with any rule; the next answer begins the form anew, and one without is free."""
    talk = [{"role": "user", "content": "a"}]
    for _ in range(2):
        for said in (model.generate("a", 60, regex="[xyz]{1,4}!", **rules), model.chat(talk, 60, regex="[xyz]{1,4}!", **rules)):
            assert re.fullmatch("[xyz]{1,4}!", "".join(said))
    schema = {"enum": ["one", "two", 3]}
    assert json.loads("".join(model.generate("a", 60, schema=schema, **rules))) in schema["enum"]
    assert "".join(model.chat(talk, 60, grammar='root ::= "no"', **rules)) == "no"


def test_what_cannot_be_asked_of_a_model_is_refused(model: iron_lm.Model) -> None:
    with pytest.raises(UsageError, match="generate: schema and regex exclude each other"):
        model.generate("a", schema={}, regex="a")
    with pytest.raises(UsageError, match="chat: regex: at"):
        model.chat([{"role": "user", "content": "a"}], regex="(")


def test_the_command_line(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json-schema and --grammar read files; --regex is the text itself; what is wrong names the option and the file."""
    schema, grammar = tmp_path / "s.json", tmp_path / "g.gbnf"
    schema.write_text('{"enum": ["x", "y"]}'), grammar.write_text('root ::= "yes" | "no"')
    argv = ["--checkpoint", str(file), "--max-seq-len", "128", "--prompt", "a", "--json"]
    said = []
    for more in (["--json-schema", str(schema)], ["--grammar", str(grammar)], ["--regex", "z{3}"]):
        assert run(Llama, [*argv, *more]) == 0
        said.append(json.loads(capsys.readouterr().out)["text"])
    assert json.loads(said[0]) in ("x", "y") and said[1] in ("yes", "no") and said[2] == "zzz"
    grammar.write_text("root ::= (")
    for text, more in (
        (f"--grammar {grammar}: Failed to convert", ["--grammar", str(grammar)]),
        ("--json-schema .*nowhere: No such file", ["--json-schema", str(tmp_path / "nowhere")]),
        ("--json-schema and --regex exclude each other", ["--json-schema", str(schema), "--regex", "a"]),
        ("--regex is for answers", ["--regex", "a", "--check-determinism", "2"]),
    ):
        with pytest.raises(UsageError, match=text):
            run(Llama, [*argv[:-1], *more])
