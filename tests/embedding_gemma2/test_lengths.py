"""How long texts and clips may be, and how large images: each length in one compile, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import BoundsError, ParamError, UsageError
from iron_embedding_gemma2 import embedder
from tests.embedding_gemma2.conftest import unit
from tests.embedding_gemma2.weights import LENGTHS, text_of
from tests.resizes import image_of


@pytest.fixture(scope="module")
def longest(folder: Path, backend: str) -> embedder.MediaEncoder:
    """Compiled once, for as many tokens as the model takes."""
    return embedder.load(folder, backend=backend)


def test_every_length_is_what_transformers_says(longest: Any, golden: Any) -> None:
    """From one token to all that the model takes, in any order, by one compiled graph: within 1e-4."""
    assert longest.loaded.context == LENGTHS[-1]
    order = (513, 1, 640, 64, 2, 511, 65, 63)
    check(longest, golden, [n for n in order if longest.backend.name == "host" or n < 511])


@pytest.mark.slow
def test_long_texts_are_too_by_the_reference(folder: Path, golden: Any) -> None:
    """It takes them a sum at a time."""
    check(embedder.load(folder, backend="reference"), golden, (513, 640, 511))


def check(model: embedder.MediaEncoder, golden: Any, lengths: Sequence[int]) -> None:
    want = dict(zip(LENGTHS, golden["length_vectors"], strict=True))
    for n in lengths:
        (got,) = model.vectors([[int(i) for i in text_of(n)]])
        assert np.abs(got - unit(want[n])).max() < 1e-4, n
    assert len(model.compiled.versions) == 1


def test_a_text_that_does_not_fit_is_refused(longest: Any) -> None:
    """By how many tokens it has, and how many it may have; none is no text."""
    with pytest.raises(UsageError, match="641 tokens; legal: 1 to max_seq_len=640"):
        longest.vectors([[5] * 641])
    with pytest.raises(UsageError, match="0 tokens; legal: 1 to max_seq_len=640"):
        longest.vectors([[]])
    with pytest.raises(UsageError, match="text 2 has 652 tokens; legal: 1 to max_seq_len=640"):
        longest.embed(["w4", "w5 " * 650])
    with pytest.raises(UsageError, match="max_seq_len=641; legal: 1 to 640, the model's own"):
        embedder.load(longest.loaded.checkpoint.path, max_seq_len=641, backend="host")


@pytest.mark.parametrize("id", [-1, 512, 2**40])
def test_an_id_that_there_is_not_is_refused(longest: Any, id: int) -> None:
    """By its place, and what ids there are."""
    with pytest.raises(BoundsError, match=rf"id {id} at place 1; legal: 0 to 511, of a vocabulary of 512"):
        longest.vectors([[5, id]])


@pytest.mark.parametrize(("samples", "said"), [
    (160, "160 samples, 16000 a second; legal: 161 to 480000, which are 30 s"),
    (480001, "480001 samples, 16000 a second; legal: 161 to 480000"),
    (0, "0 samples"),
])  # fmt: skip
def test_a_clip_that_does_not_fit_is_refused(longest: Any, samples: int, said: str) -> None:
    """By how many samples it has, and how many it may have."""
    with pytest.raises(UsageError, match=said):
        longest.embed_clip(np.zeros(samples, np.float32))


@pytest.mark.parametrize(("size", "said"), [
    ((1, 10000), r"10000 x 1 pixels becomes 840 x 3 patches; legal: columns=126 x rows=24 at most"),
    ((10000, 1), r"1 x 10000 pixels becomes 3 x 840 patches; legal"),
])  # fmt: skip
def test_an_image_that_does_not_fit_is_refused(longest: Any, pictured: Path, size: tuple[int, int], said: str) -> None:
    """By what would become of it."""
    model = embedder.load(pictured, max_seq_len=320, backend=longest.backend.name)
    with pytest.raises(ParamError, match=said):
        model.embed_image(image_of(*size))
