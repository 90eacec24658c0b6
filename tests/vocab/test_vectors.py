"""Tokenizers against llama.cpp's own test vectors, from the packages that `nox -s vocab` fetches into $IRON_VOCAB."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.text.opening import open_tokenizer

PLACE = Path(os.environ.get("IRON_VOCAB", "."))
SEPARATOR = "\n__ggml_vocab_test__\n"
#: Vocabularies and what their GGUF is called; those of the families we run first.
GGUF = ("llama-bpe", "qwen2", "qwen35", "gemma-4", "llama-spm", "phi-3", "gpt-2", "starcoder", "refact", "command-r")


def vectors(name):
    """(text, ids) pairs of a vocabulary."""
    stem = PLACE / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{stem}.inp").read_bytes().decode().split(SEPARATOR)
    lines = Path(f"{stem}.out").read_text().split("\n")
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=False)]


@pytest.fixture(scope="module")
def tokenizers():
    """Opened once each."""
    made = {}

    def opened(name):
        if name not in made:
            if name == "llama3":
                made[name] = open_tokenizer(PLACE / "llama3" / "tokenizer.model")
            else:
                made[name] = open_tokenizer(None, Checkpoint.open(PLACE / f"ggml-vocab-{name}.gguf"))
        return made[name]

    return opened


@pytest.mark.parametrize("name", [*GGUF, "llama3"])
def test_every_vector(tokenizers, name):
    """Each text becomes the ids that llama.cpp's repository states. Llama 3's ranks give what its GGUF does."""
    tokenizer = tokenizers(name)
    pairs = vectors("llama-bpe" if name == "llama3" else name)
    assert len(pairs) >= 40
    wrong = [(text, ids) for text, ids in pairs if tokenizer.encode(text)[tokenizer.bos is not None :] != ids]
    assert not wrong, wrong[0]


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "gemma-4", "llama3"])
def test_round_trips(tokenizers, name):
    """Any Unicode text comes back from its ids, at once and streamed token by token; but for the character that a vocabulary writes
    for a space."""
    tokenizer = tokenizers(name)

    @hypothesis.settings(max_examples=200, deadline=None)
    @hypothesis.given(st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="▁"), max_size=60))
    def holds(text):
        ids = tokenizer.encode(text)
        stream = tokenizer.stream()
        assert tokenizer.decode(ids) == text
        streamed = "".join(stream(i) for i in ids)
        assert streamed == text

    holds()
