"""all-MiniLM-L6-v2, its real weights: against vectors stored from transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import iron_lm
from iron_lm.text.opening import open_tokenizer

STORED = np.load(Path(__file__).parents[1] / "data" / "minilm.npz")


@pytest.fixture(scope="module")
def model(minilm: Path) -> iron_lm.EncoderModel:
    return iron_lm.load_encoder(minilm, backend="host")


def test_vectors_are_those_of_transformers(model: iron_lm.EncoderModel) -> None:
    """Texts of several languages, of one letter and of 120 words, with a special token's text in one; cosine at least 0.99999."""
    got, want = model.embed([str(text) for text in STORED["texts"]]), STORED["vectors"]
    assert (got * want).sum(1).min() >= 0.99999 and np.abs(got - want).max() < 1e-5


def test_the_figures_of_pairs(model: iron_lm.EncoderModel) -> None:
    """A cat is near a kitten and not near a car."""
    cat, kitten, car = model.embed(["a cat", "a kitten", "a car"])
    assert (round(float(cat @ kitten), 3), round(float(cat @ car), 3)) == (0.766, 0.352)
    assert model.config.pooling == "mean" and model.loaded.context == 512


@pytest.mark.parametrize("lengths", [(1, 2, 63, 64, 65), pytest.param((511, 512), marks=pytest.mark.slow)], ids=str)
def test_every_length_is_its_twin_with_one_compile(model: iron_lm.EncoderModel, lengths: tuple[int, ...]) -> None:
    """Lengths around whole blocks of rows, and the longest there is."""
    twin, rng = model.loaded.build(), np.random.default_rng(0)
    for n in lengths:
        ids = rng.integers(1000, 30000, n).tolist()
        want = twin.twin(model.loaded.exact, ids)[0]
        assert np.abs(model.vector(ids) - want).max() < 1e-4, n
    assert len(model.compiled.versions) == 1


def test_its_vocab_txt_alone_gives_the_same_ids(model: iron_lm.EncoderModel, minilm: Path, tmp_path: Path) -> None:
    """Of texts of several languages: those of its tokenizer.json."""
    (tmp_path / "vocab.txt").write_bytes((minilm / "vocab.txt").read_bytes())
    alone = open_tokenizer(tmp_path)
    assert alone is not None and model.tokenizer is not None
    for text in STORED["texts"]:
        assert alone.encode_whole(str(text)) == model.tokenizer.encode_whole(str(text)), text
