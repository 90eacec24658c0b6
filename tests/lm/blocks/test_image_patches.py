"""`ImagePatches` alone: images of any size as a vision tower's patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core import bfloat16
from iron_core.errors import ParamError, ShapeError
from iron_lm.blocks.image_patches import BUDGETS, ImagePatches, ImagePatchesConfig
from iron_lm.run import Run
from tests.lm.blocks.calling import called
from tests.resizes import IMAGES, digest, image_of

GOLDEN = dict(np.load(Path(__file__).parents[2] / "data/blocks.npz"))


def patched(config: ImagePatchesConfig, image: np.ndarray, run: Run, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the block makes of an image: all its patches, and their positions, (patches, 2)."""
    part = ImagePatches(config, run, options.pop("cores", 16))
    part.fill({})
    patches, positions = called(part, config.laid(image), **config.sizes(*image.shape[:2]), **options)
    return np.asarray(patches), np.asarray(positions).T


def config_of(budget: int, height: int, width: int) -> ImagePatchesConfig:
    """One that takes such an image, however narrow."""
    wide = ImagePatchesConfig(budget=budget, rows=3 * budget, columns=3 * budget)
    rows, columns = wide.grid(height, width)
    usual = ImagePatchesConfig(budget=budget)
    return ImagePatchesConfig(budget=budget, rows=max(rows, min(usual.rows, 48)), columns=max(columns, min(usual.columns, 48)))


@pytest.mark.parametrize("at", range(len(IMAGES)))
def test_stored_digests_are_torchs(at: int, run: Run) -> None:
    """Of thirty sizes: every bit of every patch, and how many tokens transformers says there are."""
    height, width, budget = IMAGES[at]
    config, image = config_of(budget, height, width), image_of(height, width)
    patches, positions = patched(config, image, run, backend="host")
    tokens = config.tokens(height, width)
    assert tokens == GOLDEN["patches/tokens"][at] <= budget
    assert digest(patches[: 9 * tokens]) == str(GOLDEN["patches/digests"][at])
    assert not patches[9 * tokens :].any() and (positions[9 * tokens :] == 10240).all()


@settings(max_examples=8)
@given(height=st.integers(1, 60), width=st.integers(1, 60), budget=st.sampled_from((1, 4, 9)), pool=st.sampled_from((1, 2, 3)))
def test_it_is_its_twin(height: int, width: int, budget: int, pool: int, backend: str, run: Run) -> None:
    """To the bit: patches token by token, and where each of them is."""
    side = pool * budget
    config = ImagePatchesConfig(budget=budget, pool=pool, rows=side, columns=side, positions=side + 1)
    image = image_of(height, width)
    patches, positions = patched(config, image, run, backend=backend)
    want, where = ImagePatches(config, run).twin({}, image)
    assert np.array_equal(patches[: len(want)], want) and np.array_equal(positions[: len(want)], where)
    assert not patches[len(want) :].any()


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_arrays_compute_it(dev: str) -> None:
    """To the bit, in bfloat16, where cores share a picture."""
    config = ImagePatchesConfig(budget=4, pool=2, rows=4, columns=8, room=8, positions=9)
    image = image_of(20, 30)
    patches, positions = patched(config, image, Run(16, 16), backend="sim", dev=dev, cores=4)
    want, where = ImagePatches(config, Run(16, 16)).twin({}, image)
    assert np.array_equal(patches[: len(want)], want.astype(bfloat16)) and np.array_equal(positions[: len(want)], where)


def test_one_compile_serves_every_size_up_to_its_own(run: Run) -> None:
    """Of a picture's buffer; what lay in it before is not seen."""
    config = ImagePatchesConfig(budget=70)
    part = ImagePatches(config, run)
    part.fill({})
    compiled = part.compile(backend="host", picture=((90, 4096), np.uint8))
    for height, width in ((90, 120), (5, 7), (60, 90)):
        image, held = image_of(height, width), np.full((90, 4096), 77, np.uint8)
        held[:height, : 3 * width] = image.reshape(height, -1)
        patches, _ = compiled(held, **config.sizes(height, width))
        want, _ = part.twin({}, image)
        assert np.array_equal(patches[: len(want)], want) and not np.asarray(patches)[len(want) :].any()
    assert len(compiled.versions) == 1


@pytest.mark.parametrize(("height", "width", "budget", "pixels"), [
    (224, 224, 280, (768, 768)), (480, 640, 280, (672, 912)), (1080, 1920, 280, (576, 1056)), (384, 384, 70, (384, 384)),
    (336, 432, 70, (336, 432)), (288, 528, 70, (288, 528)), (1, 10000, 280, (48, 13440)),
])  # fmt: skip
def test_an_image_becomes_as_large_as_its_budget_allows(height: int, width: int, budget: int, pixels: tuple[int, int]) -> None:
    """The sizes that are published; a narrow one is a token wide, and no longer than the budget."""
    config = ImagePatchesConfig(budget=budget, rows=3 * budget, columns=3 * budget)
    assert tuple(16 * n for n in config.grid(height, width)) == pixels
    assert tuple(16 * n for n in config.grid(width, height)) == pixels[::-1]


@settings(max_examples=40)
@given(st.integers(1, 9000), st.integers(1, 9000), st.sampled_from(BUDGETS))
def test_a_budget_is_kept(height: int, width: int, budget: int) -> None:
    """By every image; and its table has room for every resize."""
    config = ImagePatchesConfig(budget=budget, rows=3 * budget, columns=3 * budget)
    rows, columns = config.grid(height, width)
    assert 1 <= config.tokens(height, width) <= budget and rows % 3 == columns % 3 == 0
    for have, made in ((height, rows * 16), (width, columns * 16)):
        taps = 2 * int(np.ceil(2 * max(have / made, 1.0))) + 1
        assert 4 + 16 * (2 + (taps + 1) // 2) <= config.words(height, width)


def test_an_image_that_is_too_narrow_is_refused() -> None:
    """With what it would become, and what there is room for."""
    with pytest.raises(ParamError, match="10000 x 1 pixels becomes 840 x 3 patches; legal: columns=96 x rows=96 at most"):
        ImagePatchesConfig().grid(1, 10000)
    with pytest.raises(ParamError, match="an image of 0 x 5 pixels; legal: 1 x 1 or more"):
        ImagePatchesConfig().grid(5, 0)
    with pytest.raises(ShapeError, match=r"an image of uint8 \[4, 4\]; legal: uint8 \(height, width, 3\)"):
        ImagePatchesConfig().laid(np.zeros((4, 4), np.uint8))


@pytest.mark.parametrize(("fields", "says"), [
    (dict(rows=95), "rows=95; legal: multiples of pool=3. Nearest: 93"), (dict(positions=96), "positions=96; legal: 97 or more"),
    (dict(budget=0), "budget=0"), (dict(room=279), "room=279; legal: budget=280 or more"),
])  # fmt: skip
def test_what_cannot_be_is_refused(fields: dict[str, Any], says: str) -> None:
    """By field, value and what would be legal."""
    with pytest.raises(ParamError, match=says):
        ImagePatchesConfig(**fields)
