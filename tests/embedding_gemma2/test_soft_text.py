"""Texts with images, and with clips and images, in them: one graph from ids to a vector."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_embedding_gemma2 import heard_text, seen_text, vision
from iron_embedding_gemma2.audio import Hearing
from iron_embedding_gemma2.seen_text import SeenText
from iron_embedding_gemma2.soft_text import SoftText
from iron_embedding_gemma2.vision import VisionTower
from iron_lm.blocks.image_patches import ImagePatchesConfig
from iron_lm.blocks.log_mel import LogMelConfig
from tests.embedding_gemma2.conftest import drawn
from tests.embedding_gemma2.weights import clip
from tests.resizes import image_of

SOUND = LogMelConfig(frames=64)


class Mixed(SoftText):
    """A clip's samples and an image's patches, which are too small in the tiny model for `ImagePatches`."""

    def __init__(self, config: Any, run: Any) -> None:
        hearing = Hearing(config.audio, SOUND, config.hidden_size, run)
        super().__init__(config, run, heard=hearing.tower.tokens, seen=4)
        self.hearing, self.seeing = hearing, VisionTower(config.vision, config.hidden_size, run)

    def body(
        self,
        ids: Any,
        samples: Any,
        patches: Any,
        positions: Any,
        *,
        rows: iron.Scratchpad[np.int32],
        count: iron.Scratchpad[np.int32],
        heard: iron.Scratchpad[np.int32],
        tokens: iron.Scratchpad[np.int32],
    ) -> Any:
        clip = self.hearing(samples, count=count, tokens=heard), heard
        return self.vector(ids, rows, heard=clip, seen=(self.seeing(patches, positions, tokens=tokens), tokens))


def picture() -> tuple[np.ndarray, np.ndarray]:
    """The stored image's patches and (column, row), the four of each token one after the other."""
    order = np.arange(16).reshape(2, 2, 2, 2).swapaxes(1, 2).ravel()
    places = np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1).reshape(16, 2)
    patches = np.random.default_rng(11).random((1, 16, 48)).astype(np.float32)[0]
    return patches[order], places[order].astype(np.int32)


def test_all_three_say_what_transformers_says(golden: Any, run: Any, backend: str) -> None:
    """A text, a clip and an image in one graph: the vector is the mean of transformers' states, within 1e-4."""
    part = Mixed(golden.config, run)
    seeing = {f"seeing.{path}": source for path, source in vision.names(golden.config.vision).items()}
    golden.filled(part, heard_text.named(golden.config) | seeing)
    samples, (patches, places) = SOUND.laid(clip(7333, 1)), picture()
    ids = np.zeros(64, np.int32)
    given = golden["mixed_ids"]
    ids[: len(given)] = given
    shapes = dict(ids=(64,), positions=(2, 16))
    graph = part.compile(
        **{name: (shape, np.int32) for name, shape in shapes.items()},
        samples=(samples.shape, np.float32),
        patches=((16, 48), np.float32),
        backend=backend,
    )
    values = dict(rows=len(given), count=SOUND.frames_of(7333), heard=len(golden["soft1"]), tokens=4)
    got = graph(ids, samples, patches, np.ascontiguousarray(places.T), **values)
    assert np.abs(got - golden["mixed_states"].mean(0)).max() < 1e-4


def test_an_image_of_a_file_is_its_twin(golden: Any, run: Any, backend: str) -> None:
    """From pixels to the vector, of images of several sizes in one compile."""
    config = attrs.evolve(golden.config, vision=attrs.evolve(golden.config.vision, patch=16, num_layers=1))
    patches = ImagePatchesConfig(budget=6, pool=2, rows=12, columns=12, positions=33)
    part = SeenText(config, patches, run)
    weights = drawn(part)
    part.fill(weights)
    graph = part.compile(ids=((64,), np.int32), picture=((50, 4096), np.uint8), backend=backend)
    for height, width in ((50, 70), (31, 20)):
        image, tokens, held = image_of(height, width), patches.tokens(height, width), np.zeros((50, 4096), np.uint8)
        held[:height, : 3 * width] = image.reshape(height, -1)
        given = [2, 503, *[500] * tokens, 504, 41, 1]
        down, across = patches.grid(height, width)
        ids = np.zeros(64, np.int32)
        ids[: len(given)] = given
        got = graph(ids, held, rows=len(given), height=height, width=width, down=down, across=across, tokens=tokens)
        assert np.abs(got - part.twin(weights, given, image)).max() < 1e-4


def test_every_weight_has_a_name(golden: Any, run: Any) -> None:
    """In a checkpoint of all towers."""
    config = attrs.evolve(golden.config, vision=attrs.evolve(golden.config.vision, patch=16))
    part = SeenText(config, ImagePatchesConfig(budget=6, pool=2, rows=12, columns=12, positions=33), run)
    general = {path.replace(f"layers.{i}.", "layers.{i}.") for path in part.tensors() for i in range(6) if f"layers.{i}." in path}
    assert general <= {*seen_text.named(config), *(path for path in general if "signal" in path)}
