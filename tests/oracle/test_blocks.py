"""Blocks and the vision tower against torch and transformers, live. Needs both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")

from iron_embedding_gemma2.config import VisionConfig  # noqa: E402
from iron_embedding_gemma2.vision import VisionTower  # noqa: E402
from iron_lm.blocks.conv2d import Conv2d, Conv2dConfig  # noqa: E402
from iron_lm.blocks.image_patches import BUDGETS, ImagePatchesConfig  # noqa: E402
from iron_lm.blocks.log_mel import LogMel, LogMelConfig  # noqa: E402
from iron_lm.blocks.max_pool2d import MaxPool2d, MaxPool2dConfig  # noqa: E402
from iron_lm.run import Run  # noqa: E402
from tests.clips import CLIPS, clip  # noqa: E402
from tests.embedding_gemma2.conftest import drawn  # noqa: E402
from tests.embedding_gemma2.test_vision import image, padded  # noqa: E402
from tests.lm.blocks.calling import called  # noqa: E402
from tests.lm.blocks.test_image_patches import config_of, patched  # noqa: E402
from tests.oracle.peers import patches_of, soft_tokens, spectrogram, tokens_of  # noqa: E402
from tests.resizes import IMAGES, image_of  # noqa: E402

RUN = Run(64, 64, dtype="float32", cache_dtype="float32")
pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))


@pytest.mark.parametrize("size", IMAGES)
def test_patches_are_torchs(size: tuple[int, int, int]) -> None:
    """Of thirty sizes, every bit."""
    height, width, budget = size
    picture = image_of(height, width)
    want = patches_of(picture, budget)
    got, _ = patched(config_of(budget, height, width), picture, RUN, backend="host")
    assert np.array_equal(got[: len(want)], want) and not got[len(want) :].any()


@settings(max_examples=300)
@given(st.integers(1, 12000), st.integers(1, 12000), st.sampled_from(BUDGETS))
def test_tokens_are_as_many(height: int, width: int, budget: int) -> None:
    """As transformers' image processor gives an image of any size."""
    config = ImagePatchesConfig(budget=budget, rows=3 * budget, columns=3 * budget)
    assert config.tokens(height, width) == tokens_of(height, width, budget)


@pytest.mark.parametrize("name", CLIPS)
def test_frames_are_the_feature_extractors(name: str) -> None:
    """Of twenty clips: as many, within 2e-5."""
    config, sound = LogMelConfig(frames=320), clip(name)
    part = LogMel(config, RUN)
    part.fill({})
    want = spectrogram(sound)
    got = np.asarray(called(part, config.laid(sound), frames=len(want), backend="host"))
    assert config.frames_of(len(sound)) == len(want) and np.abs(got - want).max(initial=0) < 2e-5


@pytest.mark.parametrize(("loudness", "hertz"), [(1.0, 440.0), (0.9, 437.3), (0.3, 3000.0), (1.0, 50.0), (1.0, 7000.0)])
def test_of_a_clean_tone_other_bands_are_the_feature_extractors(loudness: float, hertz: float) -> None:
    """Which are a million times fainter: the twin and the graph are within 2e-5 of transformers there too."""
    sound = (loudness * np.sin(2 * np.pi * hertz * np.arange(16000) / 16000)).astype(np.float32)
    config = LogMelConfig(frames=320)
    part = LogMel(config, RUN)
    part.fill({})
    theirs = spectrogram(sound)
    for found in (part.twin({}, config.laid(sound))[: len(theirs)], called(part, config.laid(sound), frames=len(theirs), backend="host")):
        assert np.abs(np.asarray(found) - theirs).max() < 2e-5


@settings(max_examples=25)
@given(
    height=st.integers(4, 12), width=st.integers(4, 12), channels=st.integers(1, 3), out=st.integers(1, 4), kernel=pairs, stride=pairs,
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)  # fmt: skip
def test_planes_are_torchs(height: int, width: int, channels: int, out: int, kernel: Any, stride: Any, padding: Any) -> None:
    """conv2d of any kernel, stride and padding; max_pool2d where it takes the padding."""
    fields: dict[str, Any] = dict(height=height, width=width, kernel=kernel, stride=stride)
    part = Conv2d(Conv2dConfig(**fields, in_channels=channels, out_channels=out, padding=padding, bias=True), RUN)
    weights = drawn(part)
    part.fill(weights)
    x = np.random.default_rng(height).standard_normal((height, width, channels)).astype(np.float32)
    planes = torch.from_numpy(x).permute(2, 0, 1)[None]
    want = torch.nn.functional.conv2d(planes, *(torch.from_numpy(weights[n]) for n in ("kernel", "bias")), stride, padding)
    assert np.abs(called(part, x, backend="host") - want[0].permute(1, 2, 0).numpy()).max() < 1e-4
    half = (min(padding[0], kernel[0] // 2), min(padding[1], kernel[1] // 2))
    largest = MaxPool2d(MaxPool2dConfig(**fields, channels=channels, padding=half), RUN)
    largest.fill({})
    want = torch.nn.functional.max_pool2d(planes, kernel, stride, half)
    assert np.array_equal(called(largest, x, backend="host"), want[0].permute(1, 2, 0).numpy())


@pytest.mark.parametrize("config", [
    VisionConfig(hidden_size=32, num_layers=2, num_heads=2, head_dim=16, intermediate_size=64, patch=4, pool=2, positions=32),
    VisionConfig(hidden_size=48, num_layers=3, num_heads=2, head_dim=24, intermediate_size=80, patch=8, pool=3, positions=20),
    VisionConfig(num_layers=1, positions=64),
])  # fmt: skip
def test_soft_tokens_are_those_of_transformers(config: VisionConfig) -> None:
    """Gemma4VisionModel, small ones and a layer of the released size, and the projector: within 1e-4."""
    part = VisionTower(config, 40, RUN)
    weights = drawn(part)
    part.fill(weights)
    rows, columns = 2 * config.pool, 4 * config.pool
    patches, positions = image(rows, columns, config.pool, 3 * config.patch**2)
    want = soft_tokens(config, weights, patches, positions)
    given, where = padded(patches, positions, len(patches) + 2 * config.pool**2, config.positions)
    got = called(part, given, where, tokens=8, backend="host")
    assert np.abs(got - want).max() < 1e-4 and np.abs(part.twin(weights, patches, positions) - want).max() < 1e-4
