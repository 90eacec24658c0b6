"""Texts with clips in them: one graph from ids and samples to a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_embedding_gemma2 import clips
from iron_embedding_gemma2.heard_text import HeardText, named
from iron_lm.blocks.log_mel import LogMelConfig
from tests.embedding_gemma2.weights import clip

SOUND = LogMelConfig(frames=64)
SAMPLES = SOUND.laid(clip(7333, 1))
COUNT = SOUND.frames_of(7333)


@pytest.fixture(scope="module")
def heard(golden: Any, run: Any) -> Any:
    part = HeardText(golden.config, SOUND, run)
    return part, golden.filled(part, named(golden.config))


def laid(ids: Any) -> np.ndarray:
    row = np.zeros(64, np.int32)
    row[: len(ids)] = ids
    return row


def test_it_says_what_transformers_says(heard: Any, golden: Any, backend: str) -> None:
    """The soft tokens take their places among the text's: the vector is the mean of transformers' states, within 1e-4."""
    part, _ = heard
    ids = golden["heard_ids"]
    graph = part.compile(ids=((64,), np.int32), samples=(SAMPLES.shape, np.float32), backend=backend)
    got = graph(laid(ids), SAMPLES, rows=len(ids), count=COUNT, heard=len(golden["soft1"]))
    assert np.abs(got - golden["heard_states"].mean(0)).max() < 1e-4


def test_its_twin_says_so_too(heard: Any, golden: Any) -> None:
    part, weights = heard
    got = part.twin(weights, golden["heard_ids"], SAMPLES, COUNT)
    assert np.abs(got - golden["heard_states"].mean(0)).max() < 1e-4


REFUSED = {
    "another rate": ((np.zeros((16000, 1)), 1000000), "1000000 samples a second; legal: 4000 to 192000"),
    "nothing": ((np.zeros((0, 1)), 16000), "0 samples, 16000 a second; legal: 161 to 480000"),
    "less than a frame": ((np.zeros((160, 1)), 16000), "160 samples, 16000 a second; legal: 161"),
    "40 seconds": ((np.zeros((640000, 2)), 16000), "640000 samples, 16000 a second; legal: 161 to 480000, which are 30 s"),
    "no numbers": ((np.full((16000, 1), np.nan), 16000), "no finite numbers"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_clip_is_refused(what: str) -> None:
    """One line names the file, what it has, and what would be legal."""
    given, said = REFUSED[what]
    with pytest.raises(UsageError, match=said) as raised:
        clips.checked(*given, "speech.wav")
    assert str(raised.value).startswith("speech.wav: ") and "\n" not in str(raised.value)


def test_the_shortest_and_the_longest_are_taken() -> None:
    """The shortest fills one frame."""
    for n in (161, 480000):
        assert clips.checked(np.zeros((n, 1)), 16000, "x.wav").shape == (n,)
    assert [LogMelConfig(frames=3000).frames_of(n) for n in (160, 161, 480000)] == [0, 1, 2999]
