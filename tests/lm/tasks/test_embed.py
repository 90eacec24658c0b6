"""Vectors of texts: `Model.embed()` and `--embed`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core.cli import main
from iron_core.errors import CheckpointError, IronError, UsageError
from iron_lm.embedder import Embedder, unit
from iron_lm.parts.pooling import POOLINGS

TEXTS = ("a cat", "The capital of France is Paris. " * 5, "x")


@pytest.fixture(scope="module")
def model(talking: Path) -> iron_lm.Model:
    return iron_lm.load(talking, max_seq_len=256)


@pytest.mark.parametrize("pooling", ("last", "mean", "cls"))
def test_vectors_are_pooled_hidden_states_of_length_one(model: iron_lm.Model, pooling: str) -> None:
    """Those of the twin in numpy; of texts shorter than a chunk, and longer."""
    got = model.embed(TEXTS, pooling=pooling)
    assert got.shape == (3, model.config.hidden_size) and got.dtype == np.float32 and model.tokenizer is not None
    for text, found in zip(TEXTS, got, strict=True):
        states = model.loaded.build().states_twin(model.loaded.exact, model.tokenizer.encode(text))
        whole = {"last": states[-1], "mean": states.sum(0) / len(states), "cls": states[0]}[pooling]
        assert np.abs(found - whole / np.linalg.norm(whole)).max() < 1e-4
        assert abs(np.linalg.norm(found) - 1) < 1e-6


def test_the_last_token_is_what_a_causal_models_vector_is_made_of(model: iron_lm.Model) -> None:
    """Where nobody says which; it alone has seen the text."""
    assert np.array_equal(model.embed(TEXTS), model.embed(TEXTS, pooling="last"))


@pytest.mark.parametrize("dims", (1, 7, 64))
def test_the_first_numbers_are_of_length_one_again(model: iron_lm.Model, dims: int) -> None:
    """As those models are cut that were trained for it."""
    whole, cut = model.embed(TEXTS), model.embed(TEXTS, dims=dims)
    assert cut.shape == (3, dims)
    np.testing.assert_allclose(cut, whole[:, :dims] / np.linalg.norm(whole[:, :dims], axis=1, keepdims=True), atol=1e-6)


def test_a_vector_is_its_texts_alone(model: iron_lm.Model) -> None:
    """Whatever texts went before, and whatever was generated; one text may stand by itself."""
    want = model.embed(TEXTS)
    "".join(model.generate("abc", 4))
    assert np.array_equal(model.embed(TEXTS[::-1])[::-1], want) and np.array_equal(model.embed(TEXTS[1]), want[1:2])


def test_generating_goes_on_as_if_nothing_was_embedded(model: iron_lm.Model) -> None:
    """Its caches are its own."""
    want = "".join(model.generate("abc", 8))
    held = list(model.session.held)
    model.embed(TEXTS)
    assert model.session.held == held and "".join(model.generate("abc", 8)) == want


def test_backends_agree(talking: Path, model: iron_lm.Model) -> None:
    """The numpy reference and the host."""
    other = iron_lm.load(talking, max_seq_len=256, backend="reference")
    assert np.abs(other.embed(TEXTS) - model.embed(TEXTS)).max() < 1e-4


def test_a_text_that_is_too_long_is_cut_where_asked(model: iron_lm.Model) -> None:
    """Its first ids are the whole of it."""
    most = model.loaded.context
    ids = model.tokenizer.encode("x" * 300)
    assert len(ids) > most
    want = Embedder(model.loaded, backend="host").vectors([ids[:most]])
    assert np.array_equal(model.embed("x" * 300, truncate=True), want)


def test_no_direction_is_no_vector() -> None:
    """Numbers that are all zero stay so; those of float64's range keep their directions."""
    assert unit(np.zeros(3, np.float32)).tolist() == [0, 0, 0]
    assert unit(np.full(4, 1e30, np.float32)).tolist() == [0.5] * 4
    assert set(POOLINGS) == {"cls", "last", "mean"}


@pytest.mark.parametrize(
    ("says", "call"),
    [
        ("texts=5; legal: a text, or a sequence", lambda m: m.embed(5)),
        (r"texts=\[\]; legal", lambda m: m.embed([])),
        (r"texts=\['a', 5\]; legal", lambda m: m.embed(["a", 5])),
        ("text 2 has 0 tokens; legal: 1 to max_seq_len=256", lambda m: m.embed(["a", ""])),
        (r"text 1 has \d+ tokens; legal: 1 to max_seq_len=256", lambda m: m.embed("x" * 300)),
        ("pooling='max'; legal: cls, last, mean", lambda m: m.embed("x", pooling="max")),
        ("dims=0; legal: 1 to 64, the model's own", lambda m: m.embed("x", dims=0)),
        ("dims=65; legal", lambda m: m.embed("x", dims=65)),
        ("dims=2.5; legal", lambda m: m.embed("x", dims=2.5)),
        ("dims=True; legal", lambda m: m.embed("x", dims=True)),
        (r"ids=\[\]; legal: one text or more, each a sequence of ids", lambda m: Embedder(m.loaded, backend="reference").vectors([])),
        ("ids=1; legal", lambda m: Embedder(m.loaded, backend="reference").vectors([1, 2])),
        ("id -1 at place 1; legal: 0 to ", lambda m: Embedder(m.loaded, backend="reference").vectors([[1, -1]])),
        ("257 tokens; legal: 1 to max_seq_len=256", lambda m: Embedder(m.loaded, backend="reference").vectors([[1] * 257])),
    ],
)
def test_a_mistake_is_one_error_at_the_call(model: iron_lm.Model, says: str, call: Any) -> None:
    """By name and value."""
    with pytest.raises(IronError, match=says):
        call(model)


def test_weights_with_nan_and_a_missing_tokenizer_are_told(tiny: Any) -> None:
    """The numbers by what they are; text is nothing to a model without a tokenizer."""
    loaded = tiny.loaded()
    with pytest.raises(UsageError, match="has no tokenizer"):
        Embedder(loaded, backend="host").embed("x")
    loaded.weights["norm.weight"] = np.full_like(loaded.weights["norm.weight"], np.nan)
    with pytest.raises(CheckpointError, match="hidden states are not finite"):
        Embedder(loaded, backend="host").states([1, 2, 3])


def test_what_continues_text_is_no_encoder(talking: Path) -> None:
    """Its vectors are had from the model that `load` gives."""
    with pytest.raises(UsageError, match=r"llama continues texts and is no encoder. Legal: iron_lm.load\(\), whose model has"):
        iron_lm.load_encoder(talking)


# -- the command line -----------------------------------------------------------------------------


def run(talking: Path, capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    status = main(["run", "llama", str(talking), "--max-seq-len", "256", *map(str, argv)])
    return status, *capsys.readouterr()


def test_a_line_is_a_texts_vector(talking: Path, model: iron_lm.Model, capsys: pytest.CaptureFixture[str]) -> None:
    """Every bit of it, and nothing else on standard output."""
    status, out, _ = run(talking, capsys, "--embed", TEXTS[0], "--embed", TEXTS[1], "--pooling", "mean", "--dims", 5)
    got = np.array([line.split() for line in out.splitlines()]).astype(np.float32)
    assert status == 0 and np.array_equal(got, model.embed(TEXTS[:2], pooling="mean", dims=5))


def test_json_has_texts_beside_their_vectors(talking: Path, model: iron_lm.Model, capsys: pytest.CaptureFixture[str]) -> None:
    """And what made them."""
    status, out, _ = run(talking, capsys, "--embed", TEXTS[0], "--embed", TEXTS[2], "--json")
    found = json.loads(out)
    assert status == 0 and (found["pooling"], found["dims"], found["backend"], found["model"]) == ("last", 64, "host", "llama")
    assert [each["text"] for each in found["embeddings"]] == [TEXTS[0], TEXTS[2]]
    assert found["prompt_tokens"] == sum(each["tokens"] for each in found["embeddings"]) == 8
    got = np.array([each["embedding"] for each in found["embeddings"]], np.float32)
    assert np.array_equal(got, model.embed([TEXTS[0], TEXTS[2]]))


@pytest.mark.parametrize(
    ("says", "argv"),
    [
        ("text 1 has 0 tokens", ["--embed", ""]),
        ("dims=65; legal: 1 to 64", ["--embed", "x", "--dims", 65]),
        ("--dims is for --embed", ["--dims", 5]),
        ("--pooling is for --embed", ["--pooling", "mean"]),
        ("'--pooling': 'max'", ["--embed", "x", "--pooling", "max"]),
        ("--bench and --embed exclude each other", ["--embed", "x", "--bench"]),
        ("leave out --prompt", ["--embed", "x", "--prompt", "y"]),
        ("leave out --profile", ["--embed", "x", "--profile"]),
        ("not valid UTF-8", ["--embed", "\udcff"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(talking: Path, capsys: pytest.CaptureFixture[str], says: str, argv: list[object]) -> None:
    """Before anything is printed."""
    status, out, err = run(talking, capsys, *argv)
    assert (status, out) == (2, "") and re.fullmatch(r"error: [^\n]+\n", err) and re.search(says, err), err
