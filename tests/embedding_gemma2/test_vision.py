"""The vision tower: what it makes of an image's patches, and of a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import ParamError
from iron_embedding_gemma2.config import VisionConfig
from iron_embedding_gemma2.vision import ImageTower, VisionTower, names
from iron_lm.blocks.image_patches import ImagePatches, ImagePatchesConfig
from iron_lm.checkpoints.sources import source_of
from iron_lm.run import Run
from tests.embedding_gemma2.conftest import drawn
from tests.resizes import image_of

GOLDEN = dict(np.load(Path(__file__).parents[1] / "data/vision_tower.npz"))
CONFIG = VisionConfig(hidden_size=32, num_layers=2, num_heads=2, head_dim=16, intermediate_size=64, patch=4, pool=2, positions=32)
#: What of a config changes the sums, by the name under which transformers' tokens are stored.
CONFIGS = {
    "plain": CONFIG,
    "clipped": attrs.evolve(CONFIG, clipped=True),
    "standardized": attrs.evolve(CONFIG, standardize=True),
}
#: (rows, columns) of patches of the largest image.
GRID = (4, 6)


def image(rows: int, columns: int, pool: int, numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """Patches, drawn, and their (column, row), token by token."""
    y, x = np.indices((rows, columns)).reshape(2, rows // pool, pool, columns // pool, pool).swapaxes(2, 3).reshape(2, -1)
    patches = np.random.default_rng(rows).random((rows * columns, numbers))
    return patches.astype(np.float32), np.stack([x, y], -1).astype(np.int32)


def padded(patches: np.ndarray, positions: np.ndarray, places: int, none: int) -> tuple[np.ndarray, np.ndarray]:
    """As `ImagePatches` gives them: zeros, and the tables' last row, behind the last."""
    more = places - len(patches)
    return np.pad(patches, ((0, more), (0, 0))), np.pad(positions.T, ((0, 0), (0, more)), constant_values=none)


def made(config: VisionConfig, run: Run) -> Any:
    """A tower and its weights."""
    part = VisionTower(config, 40, run)
    weights = drawn(part)
    part.fill(weights)
    return part, weights


@pytest.fixture(scope="module")
def tower(run: Run) -> Any:
    return made(CONFIG, run)


@pytest.mark.parametrize("name", CONFIGS)
def test_stored_soft_tokens_are_those_of_transformers(name: str, run: Run, backend: str) -> None:
    """Gemma4VisionModel and the projector, with the same weights: within 1e-4, of the largest image and of a smaller one; with
    products between bounds, and with standardised means, too."""
    part, weights = made(CONFIGS[name], run)
    graph = part.compile(patches=((24, 48), np.float32), positions=((2, 24), np.int32), backend=backend)
    for rows, columns in (GRID, (2, 4)):
        patches, positions = image(rows, columns, 2, 48)
        want = GOLDEN[f"{name}/{rows}x{columns}"]
        got = graph(*padded(patches, positions, 24, 32), tokens=len(want))
        assert got.shape == want.shape and np.abs(got - want).max() < 1e-4
        assert np.abs(part.twin(weights, patches, positions) - want).max() < 1e-4


class _Centred(iron.Graph):
    def __init__(self, tower: Any) -> None:
        self.tower = tower

    def body(self, patches: Any) -> Any:
        return self.tower.centred(patches)


@pytest.mark.parametrize(("on", "dev"), [("host", None), ("sim", "npu1"), ("sim", "npu2")])
def test_what_is_made_of_a_pixel_is_rounded_once(on: str, dev: str | None) -> None:
    """In bfloat16 each of 256 levels becomes the number next to 2 p - 1, though pixels / 255 were rounded before."""
    levels = np.arange(256)
    patches = np.tile(levels, 3).reshape(4, 192)
    tower = VisionTower(attrs.evolve(CONFIG, patch=8), 40, Run(24, 24))
    graph = _Centred(tower).compile(patches=(patches.shape, bfloat16), backend=on, dev=dev)
    got = np.asarray(graph((patches / 255).astype(np.float32).astype(bfloat16)))
    assert np.array_equal(got.astype(np.float32), (2 * patches / 255 - 1).astype(np.float32).astype(bfloat16).astype(np.float32))


def test_a_patch_is_where_its_position_says(tower: Any) -> None:
    """Two patches of one token that change places with their positions change nothing but the last bits; without them they do."""
    part, weights = tower
    patches, positions = image(*GRID, 2, 48)
    order = np.arange(24)
    order[[0, 3]] = order[[3, 0]]
    want = part.twin(weights, patches, positions)
    assert np.abs(part.twin(weights, patches[order], positions[order]) - want).max() < 1e-5
    assert np.abs(part.twin(weights, patches[order], positions) - want).max() > 1e-2


def test_a_picture_becomes_soft_tokens_in_one_graph(backend: str, run: Run) -> None:
    """Resized, cut and read: within 1e-4 of the numpy forward, of pictures of several sizes in one compile."""
    config = attrs.evolve(CONFIG, patch=16, num_layers=1)
    patches = ImagePatches(ImagePatchesConfig(budget=6, pool=2, rows=12, columns=12, positions=33), run)
    part = ImageTower(patches, VisionTower(config, 40, run))
    weights = drawn(part)
    part.fill(weights)
    graph = part.compile(picture=((50, 4096), np.uint8), backend=backend)
    for height, width in ((50, 70), (31, 20)):
        held, given = np.zeros((50, 4096), np.uint8), image_of(height, width)
        held[:height, : 3 * width] = given.reshape(height, -1)
        tokens = patches.config.tokens(height, width)
        got = graph(held, **patches.config.sizes(height, width), tokens=tokens)
        assert got.shape == (tokens, 40) and np.abs(got - part.twin(weights, given)).max() < 1e-4


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_arrays_compute_it(dev: str) -> None:
    """One layer, in bfloat16: each token points where the numpy forward's does."""
    config = VisionConfig(hidden_size=64, num_layers=1, num_heads=1, head_dim=64, intermediate_size=128, patch=8, pool=2, positions=32)
    part = VisionTower(config, 64, Run(256, 256))
    weights = {path: w.astype(bfloat16) for path, w in drawn(part).items()}
    part.fill(weights)
    patches, positions = image(6, 6, 2, 192)
    given, where = padded(patches.astype(bfloat16), positions, 256, 32)
    graph = part.compile(patches=((256, 192), bfloat16), positions=((2, 256), np.int32), backend="sim", dev=dev)
    got = np.asarray(graph(given, where, tokens=9)).astype(np.float32)
    want = part.twin(weights, patches.astype(bfloat16), positions)
    cosine = (got * want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)
    assert got.shape == (9, 64) and cosine.min() > 0.995


def test_every_weight_has_a_name() -> None:
    """In a checkpoint of all towers, each another; with bounds 4 more for each of the 7 products of a layer, and 2 to standardise by."""
    for config, more in ((CONFIG, 0), (CONFIGS["clipped"], 2 * 7 * 4), (CONFIGS["standardized"], 2)):
        part = VisionTower(config, 40, Run(24, 24))
        found = [source_of(names(config), path).name for path in part.tensors()]
        assert len(set(found)) == len(found) == 3 + 2 * 13 + more


def test_what_cannot_be_is_refused(run: Run) -> None:
    """By field and what would be legal."""
    with pytest.raises(ParamError, match="patches of 16, 3 to a side, in a table of 10241; legal: 4, 2, 33"):
        ImageTower(ImagePatches(ImagePatchesConfig(), run), VisionTower(CONFIG, 40, run))
