"""ResampleTaps and Resample against torch's antialiased bicubic, live: every byte. Needs torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_ops_aie import Resample
from tests.resizes import padded, resized, unpatched

torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")

sizes = st.integers(1, 120)


def picture(height, width, seed):
    """Noise, or black and white, which overshoots."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (height, width, 3))
    return (noise if seed % 2 else noise // 128 * 255).astype(np.uint8)


def torchs(image, height, width, channels_last):
    """The call that torchvision makes, on either layout of memory."""
    planes = torch.from_numpy(image).permute(2, 0, 1)[None]
    if not channels_last and height * width > 1:  # of one pixel torch 2.13 makes none in that layout: an internal assertion
        planes = planes.contiguous()
    made = torch.nn.functional.interpolate(planes, size=(height, width), mode="bicubic", antialias=True)
    return made[0].permute(1, 2, 0).numpy()


@given(sizes, sizes, sizes, sizes, st.integers(0, 999), st.booleans())
@settings(max_examples=300, deadline=None)
def test_tables_resize_as_torch_does(height, width, out_height, out_width, seed, channels_last):
    """From any size to any other."""
    image = picture(height, width, seed)
    assert np.array_equal(resized(image, out_height, out_width), torchs(image, out_height, out_width, channels_last))


LARGE = ((1080, 1920, 576, 1056), (224, 224, 768, 768), (480, 640, 672, 912), (5000, 3, 8, 3), (2000, 1999, 33, 17))


@pytest.mark.parametrize("size", LARGE)
def test_tables_of_large_pictures(size):
    """Those that vision towers take; and shrunk so far that the precision has no more bits."""
    image = picture(*size[:2], 2)
    assert np.array_equal(resized(image, *size[2:], words=4096), torchs(image, *size[2:], False))


@given(sizes, sizes, st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_patches_are_torchs_pixels(height, width, rows, columns, seed):
    """As fractions in float32, of every picture that does not shrink to less than 2/19."""
    op = Resample(height=height, width=width, out_height=16 * rows, out_width=16 * columns, T=np.float32)
    image = picture(height, width, seed)
    patches = op.reference(padded(image), op.table("width"), op.table("height"))
    want = torchs(image, op.out_height, op.out_width, True).astype(np.float32) / np.float32(255)
    assert np.array_equal(unpatched(op, patches), want)
