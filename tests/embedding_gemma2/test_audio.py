"""The audio tower: features of sound, and the soft tokens made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_embedding_gemma2 import names
from iron_embedding_gemma2.audio import Hearing
from iron_embedding_gemma2.audio_attention import AudioAttention, Band
from iron_embedding_gemma2.audio_layer import AudioLayer, HalfFeedForward, LightConvolution
from iron_embedding_gemma2.clipped_linear import ClippedLinear, ClippedLinearConfig
from iron_lm.blocks.log_mel import LogMelConfig
from tests.embedding_gemma2.conftest import drawn
from tests.embedding_gemma2.weights import clip

#: Samples of the clips whose numbers are stored.
CLIPS = (400, 7333, 16000)
SOUND = LogMelConfig(frames=104)


@pytest.fixture(scope="module")
def hearing(golden: Any, run: Any) -> Any:
    """From samples to soft tokens, and its weights."""
    config = golden.config
    part = Hearing(config.audio, SOUND, config.hidden_size, run)
    return part, golden.filled(part, {f"tower.{path}": source for path, source in names.audio(config.audio).items()})


@pytest.mark.parametrize("i", range(len(CLIPS)))
def test_features_are_transformers(hearing: Any, golden: Any, i: int, backend: str) -> None:
    """As many frames, each within 2e-5 of the feature extractor's."""
    part, _ = hearing
    samples, want = SOUND.laid(clip(CLIPS[i], i)), golden[f"features{i}"]
    count = SOUND.frames_of(CLIPS[i])
    got = part.features.compile(samples=(samples.shape, np.float32), backend=backend)(samples, frames=count)
    assert got.shape == want.shape and np.abs(got - want).max() < 2e-5


def test_the_graph_says_what_transformers_says(hearing: Any, golden: Any, backend: str) -> None:
    """One compile takes clips of every length, long ones and short ones after them: soft tokens within 1e-4."""
    part, _ = hearing
    graph = part.compile(samples=((SOUND.samples,), np.float32), backend=backend)
    for i in (2, 0, 1, 2):
        got = graph(SOUND.laid(clip(CLIPS[i], i)), count=SOUND.frames_of(CLIPS[i]), tokens=len(golden[f"soft{i}"]))
        want = golden[f"soft{i}"]
        assert got.shape == want.shape and np.abs(got - want).max() < 1e-4, i


def test_the_twin_says_what_transformers_says(hearing: Any, golden: Any) -> None:
    part, weights = hearing
    for i, samples in enumerate(CLIPS):
        got = part.twin(weights, SOUND.laid(clip(samples, i)), SOUND.frames_of(samples))
        assert np.abs(got - golden[f"soft{i}"]).max() < 1e-4, i


PARTS: dict[str, Any] = {
    "feed-forward": (lambda c, run: HalfFeedForward(c, run), False),
    "light convolution": (lambda c, run: LightConvolution(c, run), False),
    "attention": (lambda c, run: AudioAttention(c, run, Band(c, 16, run)), True),
    "layer": (lambda c, run: AudioLayer(c, run, Band(c, 16, run)), True),
}


@pytest.mark.parametrize("name", PARTS)
def test_each_part_is_its_twin(name: str, golden: Any, run: Any, backend: str) -> None:
    """For fewer tokens than attention reaches back, as many, and all that it is built for, in any order."""
    make, bounded = PARTS[name]
    part = make(golden.config.audio, run)
    weights = drawn(part)
    part.fill(weights)
    x = np.random.default_rng(3).standard_normal((16, golden.config.audio.hidden_size)).astype(np.float32)
    graph = part.compile(x=(x.shape, np.float32), backend=backend)
    for n in (16, 1, 3, 4, 5, 15) if bounded else (16,):
        got = graph(x, rows=n) if bounded else graph(x)
        assert np.abs(got - part.twin(weights, x[:n])).max() < 1e-5, n


def test_bounds_hold_what_goes_in_and_what_comes_out(run: Any) -> None:
    """Of several matrices each is held between the same bounds; infinite ones hold nothing, and are no step."""
    part = ClippedLinear(ClippedLinearConfig(8, 4, parts=2), run)
    own = {"input_min": -0.5, "input_max": 0.25, "output_min": -0.1}
    weights = drawn(part) | {f"bounds.{name}": np.float32(bound) for name, bound in own.items()}
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    part.fill({path: np.asarray(array) for path, array in weights.items()})
    found = part.compile(x=(x.shape, np.float32), backend="host")(x)
    held = np.clip(x, -0.5, 0.25)
    for y, name in zip(found, ("matrix0", "matrix1"), strict=True):
        assert np.allclose(y, np.clip(held @ weights[name].T, -0.1, 1.25), atol=1e-6) and y.min() == np.float32(-0.1)
    free = ClippedLinear(ClippedLinearConfig(8, 4), run)
    bounds = {f"bounds.{side}_{end}": np.float32(sign * np.inf) for side in ("input", "output") for end, sign in (("min", -1), ("max", 1))}
    free.fill({path: np.asarray(array) for path, array in (drawn(free) | bounds).items()})
    assert [type(step.op).__name__ for step in free.trace(x=(x.shape, np.float32)).steps] == ["GEMM"]
