"""Answers past the context, and states in files, from Python and from the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core.errors import CheckpointError, UsageError
from iron_lm.generation import shifting
from iron_lm.generation.shifting import Shift
from tests.lm.test_command_line import Line


@pytest.fixture
def line(talking: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(talking, capsys, monkeypatch)


@pytest.fixture(scope="module")
def model(talking: Path) -> iron_lm.Model:
    return iron_lm.load(talking, max_seq_len=64)


def test_pieces_go_on_past_the_context(model: iron_lm.Model) -> None:
    """They are the text of the tokens that a shifted session gives, however many of the prompt's stay."""
    assert model.tokenizer is not None
    prompt = model.tokenizer.encode("the tea then the")
    for keep, kept in ((None, 1 if prompt[0] == model.tokenizer.bos else 0), (3, 3), (-1, len(prompt)), (99, len(prompt))):
        said = shifting.generate(model.session, prompt, 150, stop=model.tokenizer.stop, shift=Shift(64, kept))
        stream = model.tokenizer.stream()
        stream.take(prompt)
        assert "".join(model.generate("the tea then the", 150, shift=True, keep=keep)) == stream.take(said) + stream.rest()


@pytest.mark.parametrize(
    ("says", "asked"),
    [
        ("max_tokens=100 after", dict(max_tokens=100)),
        ("max_tokens=0 after", dict(max_tokens=0, shift=True)),
        ("keep is for an answer that outgrows max_seq_len", dict(max_tokens=9, keep=2)),
        (r"keep=-2\. Legal: -1 \(the prompt\) to 62", dict(shift=True, keep=-2)),
        (r"keep=1.5\. Legal", dict(shift=True, keep=1.5)),
    ],
)
def test_what_cannot_be_is_refused_at_the_call(model: iron_lm.Model, says: str, asked: dict[str, Any]) -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match=says):
        model.generate("the tea", **asked)
    with pytest.raises(UsageError, match="Legal: up to 63 tokens"):
        model.generate([5] * 64, shift=True)


def test_a_model_goes_on_from_a_file(model: iron_lm.Model, talking: Path, tmp_path: Path) -> None:
    """Of another process' as of its own; not with other options, nor with other weights."""
    ids = list(range(40, 75))
    model.session.generate(ids, 5)
    want = model.logits([*ids, 9]).copy()
    assert model.save_state(tmp_path / "s") == 36
    for other in (model, iron_lm.load(talking, max_seq_len=64), iron_lm.load(os.path.relpath(talking), max_seq_len=64)):
        other.session.reset()
        assert other.load_state(tmp_path / "s") == [*ids, 9] == other.session.held
        assert np.array_equal(other.logits([*ids, 9]).view(np.uint32), want.view(np.uint32))
    with pytest.raises(CheckpointError, match=r"whose max_seq_len of the run is another \(64 there, 128 here\)"):
        iron_lm.load(talking, max_seq_len=128).load_state(tmp_path / "s")


def test_other_weights_are_another_model(tiny_gguf: Any, byte_metadata: dict[str, Any], tmp_path: Path) -> None:
    """Files of the same names and shapes are told apart by their numbers."""
    one, other = (iron_lm.load(tiny_gguf(kind, metadata=byte_metadata), dtype="float32", max_seq_len=64) for kind in ("F32", "Q8_0"))
    one.session.logits([5, 6])
    one.save_state(tmp_path / "s")
    with pytest.raises(CheckpointError, match="whose weights is another"):
        other.load_state(tmp_path / "s")


def test_a_line_goes_on_past_its_context(line: Line) -> None:
    """As Python does; without the option it is refused, as it was."""
    argv = ("--prompt", "the tea then", "--num-tokens", 150, "--max-seq-len", 64)
    found = line.json(*argv, "--shift", "--keep", 4)
    assert found["ids"] and line.json(*argv, "--shift", "--keep", 4)["ids"] == found["ids"]
    model = iron_lm.load(line.checkpoint, max_seq_len=64)
    assert model.tokenizer is not None
    assert found["ids"] == shifting.generate(model.session, found["prompt_ids"], 150, stop=model.tokenizer.stop, shift=Shift(64, 4))
    line.refused(r"--max-seq-len 64 has no room for a prompt of \d+ tokens and --num-tokens 150", *argv)
    line.refused("--keep is for --shift", *argv, "--keep", 4)
    line.refused("--shift is for answers: of --prompt, or of --chat", "--bench", "--shift")
    line.refused("keep=63 of a context of 64 tokens. Legal: 0 to 62", "--prompt-len", 63, "--max-seq-len", 64, "--shift", "--keep", -1)


def test_a_line_keeps_its_state(line: Line, tmp_path: Path) -> None:
    """Made where there is none; used as far as it is the prompt's; what is another's stays as it is."""
    state, argv = tmp_path / "s", ("--max-seq-len", 64, "--num-tokens", 5)
    plain = line.json("--prompt", "the tea then the", *argv)
    first = line("--prompt", "the tea then", *argv, "--state", state)
    assert first[0] == 0 and "tokens written" in first[2]
    again = line("--prompt", "the tea then the", *argv, "--state", state, "--json")
    assert f'"ids": {plain["ids"]}' in again[1] and "of the prompt's" in again[2] and "tokens written" in again[2]
    same = line("--prompt", "the tea then the", *argv, "--state", state)
    assert same[0] == 0 and "written" not in same[2]  # it has all of it
    kept = state.read_bytes()
    other = line("--prompt", "!", *argv, "--state", state)
    assert other[0] == 0 and ("neither used nor written" in other[2]) == (state.read_bytes() == kept)
    state.write_bytes(kept[:-1])
    status, out, err = line("--prompt", "the", *argv, "--state", state)
    assert (status, out) == (2, "") and "It is cut short or damaged" in err.splitlines()[-1] and state.read_bytes() == kept[:-1]
    line.refused("--state .*: No such file", "--prompt", "the", *argv, "--state", tmp_path / "no" / "s")
    line.refused("--state is for answers: of --prompt", "--bench", "--state", state)
    line.refused("--chat is a conversation; leave out --state", "--chat", "--state", state)


def test_a_line_without_tiles_says_the_same(line: Line, tiny_gguf: Any, byte_metadata: dict[str, Any]) -> None:
    """Token by token, of block weights; a backend that has no tiles says so."""
    argv = ("--checkpoint", tiny_gguf("Q4_1", metadata=byte_metadata), "--num-tokens", 12)
    assert line.json(*argv)["ids"] == line.json(*argv, "--no-tiles")["ids"]
    line.refused("tiles", *argv, "--no-tiles", "--backend", "reference")
