"""`--lookup`, `--draft` and `load(lookup=, draft=)`: the same answers, with tokens that were guessed and read together; what cannot be."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

import iron_lm
from iron_core.cli import main
from iron_core.errors import CheckpointError, UsageError
from iron_llama.model import Llama
from iron_lm.generation.speculation import DraftModel, PromptLookup

PROMPT = "1 2 3 1 2 3 1 2"
WAYS: dict[str, tuple[Any, ...]] = {
    "greedy": (),
    "drawn": ("--temperature", 1.0, "--seed", 3),
    "penalties": ("--temperature", 1.0, "--top-p", 0.9, "--repetition-penalty", 1.2, "--frequency-penalty", 0.1),
    "shift": ("--shift", "--keep", 5, "--max-seq-len", 96),
    "a form": ("--regex", "[a-z ]{5,30}"),
    "a stop": ("--stop", "e"),
    "each step": ("--each-step",),
}


@pytest.fixture(scope="module")
def other(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> Path:
    """Another model of the same vocabulary: its weights are rounded to four bits."""
    return Path(tiny_gguf("Q4_1", metadata=byte_metadata, head="F32"))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_command_line_gives_the_same_answer(line: Any, talking: Path, other: Path, way: tuple[Any, ...]) -> None:
    """Whatever else it asks for; `--json` says what was guessed, and what came of it."""
    if "--regex" in way:
        pytest.importorskip("llguidance", reason="llguidance, which makes the masks, is not installed")
    asked = ("--prompt", PROMPT, "--num-tokens", 60, "--dtype", "float32", "--json", *way)
    status, out, err = line(*asked)
    assert status == 0, err
    want = json.loads(out)
    assert "speculation" not in want
    for guesser in (("--lookup",), ("--draft", talking), ("--draft", other, "--draft-tokens", 3)):
        status, out, err = line(*asked, *guesser)
        assert status == 0, err
        found = json.loads(out)
        assert (found["ids"], found["text"]) == (want["ids"], want["text"]), guesser
        said = found["speculation"]
        assert said.keys() == {"passes", "tokens_per_pass", "proposed", "accepted"}
        assert 0 <= said["accepted"] <= said["proposed"] and said["tokens_per_pass"] >= 1
        assert said["accepted"] > 0 or guesser != ("--draft", talking) or "--regex" in way  # a draft hears of no form


def test_a_line_says_what_came_of_it(line: Any, talking: Path) -> None:
    """Below the rates, for people."""
    status, out, err = line("--prompt", PROMPT, "--num-tokens", 40, "--draft", talking, "--dtype", "float32")
    assert status == 0 and out.startswith(PROMPT)
    assert re.search(r"\ndrafted tokens accepted: \d+ of \d+ \(\d+ %\) · \d\.\d\d tokens a pass\n", err), err
    assert "drafted" not in line("--prompt", PROMPT, "--num-tokens", 4)[2]


def test_a_state_goes_on(line: Any, tmp_path: Path) -> None:
    """What is held at the end is what was said: it is written, and goes on with guesses or without."""
    one, two = tmp_path / "one.state", tmp_path / "two.state"
    asked = ("--prompt", PROMPT, "--num-tokens", 30, "--json", "--state")
    want, found = line(*asked, one)[1], line(*asked, two, "--lookup")[1]
    assert json.loads(found)["ids"] == json.loads(want)["ids"]
    assert two.read_bytes() == one.read_bytes()
    text = PROMPT + json.loads(want)["text"]
    longer = ("--prompt", text, "--num-tokens", 20, "--json")
    plain = json.loads(line(*longer)[1])["ids"]
    assert json.loads(line(*longer, "--state", two)[1])["ids"] == json.loads(line(*longer, "--state", one, "--lookup")[1])["ids"] == plain


def test_a_profile_has_the_passes_apart(line: Any) -> None:
    """Those of drafted tokens beside those of a prompt and of single steps."""
    status, _, err = line("--prompt", PROMPT, "--num-tokens", 60, "--lookup", "--profile", "--backend", "host")
    assert status == 0
    assert re.search(r"^prompt: 1 pass ", err, re.M) and re.search(r"^drafted tokens: \d+ pass", err, re.M), err


def test_a_conversation(tiny_gguf: Any, byte_metadata: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers are the same, turn by turn, and `/stats` says what was guessed."""
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    path = tiny_gguf(metadata=byte_metadata | {"tokenizer.chat_template": template})
    said = []
    for guesser in ((), ("--lookup", "--draft-tokens", "4"), ("--draft", str(path))):
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\nand again\n/stats\n"))
        assert main(["run", "llama", "--checkpoint", str(path), "--chat", "--num-tokens", "30", "--shift", *guesser]) == 0
        out, err = capsys.readouterr()
        said.append(out)
        assert ("drafted tokens accepted" in err) == bool(guesser)
    assert said[1] == said[2] == said[0] != ""


def test_from_python(talking: Path, other: Path) -> None:
    """`load` takes what guesses; `speculation` is what does, and may be taken away."""
    options: dict[str, Any] = dict(dtype="float32", max_seq_len=128, backend="host")
    plain = iron_lm.load(talking, **options)
    assert plain.speculation is None
    want = list(plain.generate(PROMPT, 50)), list(plain.generate(PROMPT, 200, shift=True, temperature=1.0, seed=2))
    for given, kind, most in (
        (dict(lookup=True), PromptLookup, 8), (dict(draft=other, draft_tokens=5), DraftModel, 5), (dict(draft=str(talking)), DraftModel, 8)
    ):  # fmt: skip
        model = iron_lm.load(talking, **options, **given)
        assert model.speculation is not None and isinstance(model.speculation.proposer, kind) and model.speculation.most == most
        assert list(model.generate(PROMPT, 50)) == want[0]
        assert list(model.generate(PROMPT, 200, shift=True, temperature=1.0, seed=2)) == want[1]
        assert model.speculation.tokens == 250
        model.speculation = None
        assert list(model.generate(PROMPT, 50)) == want[0]


def test_a_draft_has_caches_no_longer_than_the_model(talking: Path) -> None:
    """Nor than its own context; it takes no tokens behind those."""
    model = iron_lm.load(talking, draft=talking, max_seq_len=200, prefill_chunk=32, backend="host")
    assert model.speculation is not None and isinstance(model.speculation.proposer, DraftModel)
    assert model.speculation.proposer.session.model.run.max_seq_len == 256


# -- what cannot be ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--lookup", "--draft", "x", "--prompt", "x"), "--lookup and --draft exclude each other; leave one out"),
        (("--draft-tokens", 4), "--draft-tokens is for --lookup or --draft"),
        (("--lookup", "--draft-tokens", 16), "--draft-tokens.*16 is not in the range 1<=x<=15"),
        (("--lookup", "--draft-tokens", 0), "--draft-tokens.*0 is not in the range"),
        (("--lookup", "--bench"), "--lookup is for answers: of --prompt, or of --chat"),
        (("--draft", "x", "--check-determinism", 2), "--draft is for answers: of --prompt, or of --chat"),
        (("--lookup", "--embed", "x"), "--lookup is for answers"),
        (("--draft", "/nowhere/model.gguf", "--prompt", "x"), "/nowhere/model.gguf"),
    ],
)
def test_lines_that_cannot_be(line: Any, argv: tuple[Any, ...], says: str) -> None:
    """By one line, before anything runs."""
    status, out, err = line(*argv)
    assert (status, out) == (2, "") and re.search(says, err.strip().splitlines()[-1]), err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(lookup=True, draft="x"), "lookup and draft exclude each other; leave one out."),
        (dict(draft_tokens=3), "draft_tokens is for lookup or draft."),
        (dict(lookup=True, draft_tokens=16), "draft_tokens=16; legal: 1 to 15."),
        (dict(lookup=4), "lookup=4; legal: True or False."),
        (dict(draft=7), "load(7) names no checkpoint"),
    ],
)
def test_keywords_that_cannot_be(talking: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        iron_lm.load(talking, backend="host", **given)


def test_a_draft_of_another_vocabulary_is_refused(tiny: Any, talking: Path, tiny_gguf: Any, byte_metadata: dict[str, Any]) -> None:
    """With both sizes, and the first token that is another; where one has no tokenizer the sizes have to be the same."""
    tokens = list(byte_metadata["tokenizer.ggml.tokens"])
    tokens[7], tokens[9] = tokens[9], tokens[7]
    other = tiny_gguf(metadata=byte_metadata | {"tokenizer.ggml.tokens": tokens})
    with pytest.raises(UsageError) as refused:
        iron_lm.load(talking, draft=other, backend="host")
    assert str(refused.value) == (
        f"draft {other}: another vocabulary, of 256 tokens to the model's 256: token 7 is {tokens[7]!r}, the model's {tokens[9]!r}. "
        "Legal: a draft of the same vocabulary."
    )
    unnamed = iron_lm.load(tiny_gguf(), draft=talking, dtype="float32", backend="host")
    assert unnamed.speculation is not None
    from iron_lm.guessing import guessing

    fewer = attrs.evolve(unnamed.loaded, config=attrs.evolve(tiny.config(), vocab_size=200))
    with pytest.raises(UsageError, match="a vocabulary of 200 tokens, where the model's has 256"):
        guessing(unnamed.loaded, False, "x", None, lambda path: fewer)


def test_states_that_cannot_go_back_guess_nothing(tmp_path: Path, talking: Path) -> None:
    """Of the model, or of its draft: by the family's name."""
    from tests.families.conftest import Family

    recurrent = Family("qwen3_5", tmp_path).write()
    with pytest.raises(UsageError, match=r"^lookup: what is guessed .*, and the recurrent states of qwen3_5 cannot go back"):
        iron_lm.load(recurrent, lookup=True, backend="host")
    with pytest.raises(UsageError, match=r"draft .*: what is guessed must be taken back, and the recurrent states of qwen3_5"):
        iron_lm.load(talking, draft=recurrent, backend="host")


def test_an_encoder_guesses_nothing(talking: Path) -> None:
    """It continues no text."""
    made = iron_lm.load("llama", talking, backend="host").loaded

    class Encodes:
        config = attrs.make_class("C", {"encodes": attrs.field(default=True)})()
        family, checkpoint = Llama, None

    from iron_lm.guessing import guessing

    with pytest.raises(UsageError, match="draft the draft: llama encodes texts and continues none"):
        guessing(made, False, "x", None, lambda path: Encodes())  # type: ignore[arg-type,return-value]


def test_a_damaged_draft_is_named(talking: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(talking.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=r"bad\.gguf"):
        iron_lm.load(talking, draft=bad, backend="host")
