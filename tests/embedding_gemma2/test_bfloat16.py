"""In bfloat16, on the CPU: texts, images and clips keep nearly the cosine of what float32 makes of the same weights."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.declare.formats import bfloat16
from iron_embedding_gemma2 import names
from iron_embedding_gemma2.audio import Hearing
from iron_embedding_gemma2.config import TextConfig, VisionConfig
from iron_embedding_gemma2.model import EmbeddingGemma2
from iron_embedding_gemma2.text import TextTower
from iron_embedding_gemma2.vision import ImageTower, VisionTower
from iron_lm.blocks.image_patches import ImagePatches, ImagePatchesConfig
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run
from tests.embedding_gemma2.conftest import drawn
from tests.embedding_gemma2.weights import clip, mild
from tests.resizes import image_of

SOUND, RUN = LogMelConfig(frames=104), Run(64, 64)
#: Half as wide as the released one, with six layers.
TEXT: TextConfig = attrs.evolve(
    EmbeddingGemma2.full_size(),
    vocab_size=256,
    hidden_size=256,
    num_layers=6,
    head_dim=64,
    intermediate_size=512,
    max_positions=64,
    rotary=RotaryConfig(128, 1e6),
    local_rotary=RotaryConfig(64, 1e4),
    window=17,
    sliding=(True,) * 5 + (False,),
    global_head_dim=128,
    signal_size=128,
    output_size=256,
    pooling=None,
)
VISION = VisionConfig(hidden_size=256, num_layers=6, num_heads=4, intermediate_size=512, positions=128)


def cosines(a: Any, b: Any) -> np.ndarray:
    """Of rows."""
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    assert a.shape == b.shape
    return np.asarray((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1))


def filled(part: Any) -> dict[str, Any]:
    """The weights of a part, which has them, all of bfloat16."""
    weights = {path: mild(path, array).astype(bfloat16) for path, array in drawn(part).items()}
    part.fill(weights)
    return weights


def test_what_is_said_of_each_token() -> None:
    """Of texts of 2 to 64 tokens, 0.99988 in the mean."""
    part = TextTower(TEXT, RUN)
    weights = filled(part)
    graph = part.compile(ids=((64,), np.int32), backend="host")
    found = []
    for n in (2, 9, 31, 64):
        ids = np.random.default_rng(n).integers(0, 256, 64).astype(np.int32)
        found += [*cosines(graph(ids, rows=n), part.twin(weights, ids[:n]))]
    assert np.mean(found) >= 0.99988


def test_what_is_seen() -> None:
    """The soft tokens of images of four sizes, 0.99995 in the mean."""
    patches = ImagePatchesConfig(budget=12, pool=3, positions=129)
    part = ImageTower(ImagePatches(patches, RUN), VisionTower(VISION, 40, RUN))
    weights = filled(part)
    graph = part.compile(picture=((100, 4096), np.uint8), backend="host")
    found = []
    for height, width in ((60, 90), (100, 41), (17, 30), (64, 64)):
        image, held = image_of(height, width), np.zeros((100, 4096), np.uint8)
        held[:height, : 3 * width] = image.reshape(height, -1)
        tokens = patches.tokens(height, width)
        found += [*cosines(graph(held, **patches.sizes(height, width), tokens=tokens), part.twin(weights, image))]
    assert np.mean(found) >= 0.99995


@pytest.mark.slow
def test_what_is_heard(golden: Any) -> None:
    """The soft tokens of clips of one token, of half a second and of a whole one, beside what transformers makes of them in float32."""
    config = golden.config
    part = Hearing(config.audio, SOUND, config.hidden_size, RUN)
    golden.filled(part, {f"tower.{path}": source for path, source in names.audio(config.audio).items()}, dtype=bfloat16)
    graph = part.compile(samples=((SOUND.samples,), np.float32), backend="host")
    for i, samples in enumerate((400, 7333, 16000)):
        want = golden[f"soft{i}"]
        got = graph(SOUND.laid(clip(samples, i)), count=SOUND.frames_of(samples), tokens=len(want))
        assert np.mean(cosines(got, want)) >= 0.9999, i
