"""BERT: a tiny one against transformers' stored hidden states, and what its files may and may not say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_bert.model import BERT
from iron_core.cli import main
from iron_core.errors import BoundsError, CheckpointError, IronError, UsageError
from iron_lm import loading
from iron_lm.parts.encoder import Encoder
from tests.bert.conftest import PIECES, write_modules

Made = Callable[..., Path]


@pytest.mark.parametrize("backend", ("reference", "host"))
def test_hidden_states_are_those_of_transformers(tiny_bert: Made, golden: Any, backend: str) -> None:
    """Of 33 tokens in a graph of 40 rows, and the twin's too; the vector is their mean, of length 1."""
    loaded = loading.load(BERT, tiny_bert())
    ids, want = golden["ids"].tolist(), golden["states"]
    encoder = loaded.build()
    assert isinstance(encoder, Encoder) and np.abs(encoder.states_twin(loaded.exact, ids) - want).max() < 1e-5
    got = iron_lm.EncoderModel(loaded, backend=backend).vectors([ids, ids[:1]])
    mean = want.mean(0)
    assert np.abs(got[0] - mean / np.linalg.norm(mean)).max() < 1e-5
    assert np.abs(np.linalg.norm(got, axis=1) - 1).max() < 1e-6


def test_a_vector_is_pooled_as_the_files_beside_it_say(tiny_bert: Made, golden: Any) -> None:
    """By the mean where they say nothing; a pooling that is asked for goes before theirs."""
    ids, states = golden["ids"].tolist(), golden["states"]
    for said, asked, want in (
        (None, None, states.mean(0)), ("cls_token", None, states[0]), ("lasttoken", None, states[-1]), ("cls_token", "last", states[-1]),
    ):  # fmt: skip
        loaded = loading.load(BERT, tiny_bert(said))
        got = iron_lm.EncoderModel(loaded, asked, backend="reference").vectors([ids])[0]
        assert np.abs(got - want / np.linalg.norm(want)).max() < 1e-5, said


def test_the_names_of_older_files(tiny_bert: Made, golden: Any) -> None:
    """`bert.` before them, and gamma and beta for norms' weights and biases."""

    def old(name: str) -> str:
        return "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    loaded = loading.load(BERT, tiny_bert(rename=old))
    assert np.abs(loaded.build().states_twin(loaded.exact, golden["ids"]) - golden["states"]).max() < 1e-5


def test_one_compile_takes_texts_of_every_length(tiny_bert: Made) -> None:
    """Between what a text begins and what it ends with; the first numbers alone are of length 1 again."""
    model = iron_lm.load_encoder(tiny_bert(), backend="host")
    assert model.tokenizer is not None and model.tokenizer.encode_whole("Ab c") == [2, 5, 44, 7, 3]
    whole, cut = model.embed(["a", "ab cd word3", "a " * 38]), model.embed(["a", "ab cd word3", "a " * 38], dims=5)
    assert whole.shape == (3, 32) and whole.dtype == np.float32 and len(model.compiled.versions) == 1
    np.testing.assert_allclose(cut, whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True), atol=1e-6)
    for text, want in zip(("a", "ab cd word3"), whole, strict=False):
        assert np.array_equal(model.embed(text)[0], want)


@pytest.mark.parametrize(
    ("kind", "says", "call"),
    [
        (UsageError, "text 2 has 41 tokens; legal: 1 to max_seq_len=40", lambda m: m.embed(["a", "a " * 39])),
        (UsageError, "text 1 has 0 tokens; legal: 1 to max_seq_len=40", lambda m: m.embed("")),
        (UsageError, "41 tokens; legal: 1 to max_seq_len=40", lambda m: m.vectors([[5] * 41])),
        (UsageError, "dims=33; legal: 1 to 32", lambda m: m.embed("a", dims=33)),
        (BoundsError, "id 96 at place 1; legal: 0 to 95, of a vocabulary of 96", lambda m: m.vectors([[2, 96]])),
        (BoundsError, "id -1 at place 0; legal: 0 to 95", lambda m: m.vectors([[-1]])),
        (UsageError, r"ids=\[\]; legal: one text or more, each a sequence of ids", lambda m: m.vectors([])),
        (UsageError, "ids=None; legal", lambda m: m.vectors(None)),
        (UsageError, "ids='ab'; legal", lambda m: m.vectors("ab")),
        (UsageError, "ids=1; legal", lambda m: m.vectors([1, 2])),
        (UsageError, r"ids=\[1.5\]; legal", lambda m: m.vectors([[1.5]])),
        (UsageError, r"ids=\[True\]; legal", lambda m: m.vectors([[True]])),
        (UsageError, r"ids=\[\[1\], \[2, 3\]\]; legal", lambda m: m.vector([[1], [2, 3]])),
        (UsageError, "dims=True; legal: 1 to 32", lambda m: m.embed("a", dims=True)),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(tiny_bert: Made, kind: type, says: str, call: Any) -> None:
    """Before anything runs."""
    with pytest.raises(kind, match=says):
        call(iron_lm.load_encoder(tiny_bert(), backend="reference"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(hidden_act="relu"), "hidden_act is 'relu'; this model runs gelu, gelu_new, gelu_pytorch_tanh"),
        (dict(position_embedding_type="relative_key"), "position_embedding_type is 'relative_key'; this model runs absolute"),
        (dict(is_decoder=True), "is_decoder is True; this model runs False"),
        (dict(num_attention_heads=5), "num_attention_heads is 5; legal: a number that divides hidden_size=32"),
        (dict(vocab_size=95), r"embeddings.word_embeddings.weight is \[96, 32\], not \[95, 32\]"),
    ],
)
def test_what_it_does_not_run_is_refused_by_its_entry(tiny_bert: Made, changes: dict[str, Any], says: str) -> None:
    """In config.json's words."""
    with pytest.raises(CheckpointError, match=says):
        loading.load(BERT, tiny_bert(**changes))


def test_modules_that_it_does_not_have_are_refused(tiny_bert: Made) -> None:
    """By type; a pooling of two kinds, and a folder outside, too."""
    folder = tiny_bert("mean_sqrt_len_tokens")
    with pytest.raises(CheckpointError, match="pooled by mean_sqrt_len_tokens; legal: one of cls_token, mean_tokens"):
        loading.load(BERT, folder)
    write_modules(folder, "Transformer", "Dense")
    with pytest.raises(CheckpointError, match="a module of type 'Dense'; this model runs Transformer, Normalize, Pooling"):
        loading.load(BERT, folder)
    (folder / "modules.json").write_text(json.dumps([{"type": "Pooling", "path": "../other"}]))
    with pytest.raises(CheckpointError, match=r"path is '../other'; legal: a folder beside it"):
        loading.load(BERT, folder)


@pytest.mark.parametrize(("says", "argv"), [
    ("bert encodes texts and continues none; legal: --embed TEXT", ["--prompt", "a"]),
    ("bert encodes texts and continues none; legal: --embed TEXT", ["--bench"]),
    ("prefill_chunk=8 of an encoder, which takes texts whole; leave it out", ["--embed", "a", "--prefill-chunk", "8"]),
])  # fmt: skip
def test_what_decoders_do_is_refused_in_one_line(tiny_bert: Made, capsys: pytest.CaptureFixture[str], says: str, argv: list[str]) -> None:
    """Before anything is compiled."""
    status = main(["run", "bert", str(tiny_bert()), *argv])
    out, err = capsys.readouterr()
    assert (status, out) == (2, "") and says in err and err.count("\n") == 1


def test_from_python_each_loader_names_the_other(tiny_bert: Made) -> None:
    """An encoder is none to load(), and what continues text is none to load_encoder()."""
    with pytest.raises(IronError, match=r"bert encodes texts and continues none. Legal: --embed, or iron_lm.load_encoder\(\)"):
        iron_lm.load(tiny_bert())


def test_a_line_is_a_texts_vector(tiny_bert: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """The family is found from the file."""
    folder = tiny_bert("cls_token")
    assert main(["run", str(folder), "--embed", "a", "--embed", "word3", "--dims", "3", "--backend", "reference"]) == 0
    out, err = capsys.readouterr()
    got = np.array([line.split() for line in out.splitlines()]).astype(np.float32)
    assert np.array_equal(got, iron_lm.load_encoder(folder, backend="reference").embed(["a", "word3"], dims=3)) and "cache" not in err


def test_a_text_that_is_too_long_is_cut_where_that_is_asked_for(tiny_bert: Made, capsys: Any, tmp_path: Path) -> None:
    """As sentence-transformers cuts it: to its first words between [CLS] and [SEP]; others stay as they are. By `iron embed`, too."""
    folder, long = tiny_bert(), "a " * 50
    model = iron_lm.load_encoder(folder, backend="reference")
    want = model.vectors([[2, *[5] * 38, 3], [2, 5, 3]])
    assert np.array_equal(model.embed([long, "a"], truncate=True), want)
    assert main(["run", str(folder), "--embed", long, "--truncate", "--backend", "reference"]) == 0
    assert np.array_equal(np.array(capsys.readouterr().out.split()).astype(np.float32), want[0])
    (tmp_path / "texts.jsonl").write_text(json.dumps(long) + "\n")
    line = ["embed", str(folder), str(tmp_path / "texts.jsonl"), "--out", str(tmp_path / "v.npy"), "--backend", "reference"]
    assert main(line) == 2 and main([*line, "--truncate"]) == 0
    assert np.array_equal(np.load(tmp_path / "v.npy"), want[:1])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_its_vectors_are_checked_against_the_oracle(tiny_bert: Made, capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    """Of sentences and of as much of a page as fits; a wrong weight fails."""
    folder = tiny_bert()
    argv = ["run", str(folder), "--check-accuracy", "--dtype", dtype, "--backend", "host", "--json"]
    assert main(argv) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["passed"] and said["compared"] == 9 and said["unit"] == "texts"
    assert [gate["name"] for gate in said["gates"]] == ["mean cosine", "smallest cosine", "largest relative error"]


def test_q4nx_files_are_of_no_encoders(tiny_bert: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One line says so."""
    assert main(["checkpoints", "convert", str(tiny_bert()), str(tmp_path / "out"), "--format", "q4nx"]) != 0
    said = capsys.readouterr().err
    assert "bert encodes texts, and FastFlowLM's layout has names for models that continue them" in said and said.count("\n") == 1


def test_pieces_of_a_vocab_txt_alone(tiny_bert: Made) -> None:
    """The same ids as its tokenizer.json gives."""
    folder = tiny_bert()
    whole = iron_lm.load_encoder(folder, backend="reference").tokenizer
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    alone = iron_lm.load_encoder(folder, backend="reference").tokenizer
    assert whole is not None and alone is not None and alone.after == (3,)
    for text in ("Ab c", "word3 word33, 7.", "caf\u00e9 \u4e2d", ""):
        assert alone.encode_whole(text) == whole.encode_whole(text), text
