"""`Conv2d`, `Conv1d` and `MaxPool2d` alone: planes and points in time, of any sizes, as their twins have it and as torch does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.errors import ParamError, ShapeError
from iron_lm.blocks.conv1d import Conv1d, Conv1dConfig
from iron_lm.blocks.conv2d import Conv2d, Conv2dConfig
from iron_lm.blocks.max_pool2d import MaxPool2d, MaxPool2dConfig
from iron_lm.parts.part import Part
from iron_lm.run import Run
from tests.lm.blocks.calling import called, off

GOLDEN = dict(np.load(Path(__file__).parents[2] / "data/blocks.npz"))
DEVICES = ("npu1", "npu2")
RNG = np.random.default_rng(3)

sizes = st.integers(1, 9)
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@settings(max_examples=12)
@given(
    height=sizes, width=sizes, channels=st.integers(1, 3), out=st.integers(1, 4), kernel=pairs, stride=pairs, padding=pairs,
    bias=st.booleans(),
)  # fmt: skip
def test_a_plane_is_its_twins(height, width, channels, out, kernel, stride, padding, bias, backend: str, run: Run) -> None:
    """Any kernel, stride and padding that there is room for."""
    padding = (padding[0] - 1, padding[1] - 1)
    fields: dict[str, Any] = dict(height=height + 2, width=width + 2, in_channels=channels, out_channels=out, bias=bias)
    part = Conv2d(Conv2dConfig(**fields, kernel=kernel, stride=stride, padding=padding), run)
    assert off(part, normal(height + 2, width + 2, channels), backend=backend) < 1e-5


@settings(max_examples=12)
@given(
    rows=sizes, channels=st.integers(1, 3), out=st.integers(1, 4), taps=st.integers(1, 5), stride=st.integers(1, 3),
    padding=st.integers(0, 3), bias=st.booleans(),
)  # fmt: skip
def test_points_in_time_are_their_twins(rows, channels, out, taps, stride, padding, bias, backend: str, run: Run) -> None:
    """Any taps, stride and padding that there is room for."""
    fields: dict[str, Any] = dict(rows=rows + 4, in_channels=channels, out_channels=out, taps=taps)
    part = Conv1d(Conv1dConfig(**fields, stride=stride, padding=padding, bias=bias), run)
    assert off(part, normal(rows + 4, channels), backend=backend) < 1e-5


@settings(max_examples=12)
@given(height=sizes, width=sizes, channels=st.integers(1, 3), kernel=pairs, stride=pairs, padded=st.booleans())
def test_the_largest_are_the_twins(height, width, channels, kernel, stride, padded, backend: str, run: Run) -> None:
    """To the bit; padding counts for nothing, though all numbers be negative."""
    padding = (kernel[0] // 2, kernel[1] // 2) if padded else (0, 0)
    fields: dict[str, Any] = dict(height=height + 2, width=width + 2, channels=channels)
    part = MaxPool2d(MaxPool2dConfig(**fields, kernel=kernel, stride=stride, padding=padding), run)
    part.fill({})
    x = normal(height + 2, width + 2, channels) - 5
    np.testing.assert_array_equal(called(part, x, backend=backend), part.twin({}, x))


def stored(name: str) -> dict[str, np.ndarray]:
    return {key.partition("/")[2]: value for key, value in GOLDEN.items() if key.startswith(f"{name}/")}


@pytest.mark.parametrize("name", ["conv2d", "conv1d", "max_pool2d"])
def test_stored_numbers_are_torchs(name: str, backend: str, run: Run) -> None:
    """torch.nn.functional's convolutions and pooling, with a stride and padding, of weights as torch stores them."""
    held = stored(name)
    x, want = held.pop("x"), held.pop("y")
    parts: dict[str, Part] = dict(
        conv2d=Conv2d(Conv2dConfig(height=7, width=10, in_channels=3, out_channels=5, stride=(2, 1), padding=(1, 1), bias=True), run),
        conv1d=Conv1d(Conv1dConfig(rows=13, in_channels=3, out_channels=5, taps=4, stride=2, padding=2, bias=True), run),
        max_pool2d=MaxPool2d(MaxPool2dConfig(height=7, width=10, channels=3, kernel=(3, 2), stride=(2, 2), padding=(1, 1)), run),
    )
    part = parts[name]
    part.fill(held)
    got = called(part, x, backend=backend)
    assert got.shape == want.shape and np.abs(got - want).max() < 1e-5


ON_ARRAYS: dict[str, Any] = {
    "one channel": lambda run: Conv2d(
        Conv2dConfig(height=16, width=32, in_channels=1, out_channels=16, stride=(2, 2), padding=(1, 1)), run
    ),
    "channels": lambda run: Conv2d(
        Conv2dConfig(height=16, width=16, in_channels=16, out_channels=32, stride=(2, 2), padding=(1, 1), bias=True), run
    ),
    "points": lambda run: Conv1d(Conv1dConfig(rows=64, in_channels=16, out_channels=16, padding=1), run),
    "largest": lambda run: MaxPool2d(
        MaxPool2dConfig(height=8, width=8, channels=16, kernel=(3, 3), stride=(2, 2), padding=(1, 1)), run
    ),
}


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("name", ON_ARRAYS)
def test_arrays_compute_them(name: str, dev: str) -> None:
    """In bfloat16, within a few of its units."""
    part = ON_ARRAYS[name](Run(16, 16))
    c = part.config
    shape = (c.rows, c.in_channels) if isinstance(part, Conv1d) else (c.height, c.width, getattr(c, "in_channels", 16))
    assert off(part, normal(*shape), backend="sim", dev=dev) < 0.02


@pytest.mark.parametrize(("config", "fields", "says"), [
    (Conv2dConfig, dict(kernel=3), "kernel=3; legal: .down, across."), (Conv2dConfig, dict(stride=(0, 1)), "numbers, 1 or more"),
    (Conv2dConfig, dict(padding=(-1, 0)), "0 or more"), (Conv2dConfig, dict(kernel=(9, 9)), "no room for kernel=.9, 9."),
    (MaxPool2dConfig, dict(padding=(2, 1)), "padding=.2, 1. of kernel=.2, 2.; legal: .1, 1. at most"),
])  # fmt: skip
def test_what_cannot_be_is_refused(config: Any, fields: dict[str, Any], says: str) -> None:
    """By field, value and what would be legal."""
    channels = dict(channels=2) if config is MaxPool2dConfig else dict(in_channels=2, out_channels=3)
    with pytest.raises(ParamError, match=says):
        config(**dict(height=5, width=5) | channels | fields)


def test_points_that_cannot_be_are_refused() -> None:
    """By field, value and what would be legal."""
    for fields, says in ((dict(padding=-1), "padding=-1; legal: a whole number, 0 or more"), (dict(taps=9), "no room for taps=9")):
        with pytest.raises(ParamError, match=says):
            Conv1dConfig(**dict(rows=5, in_channels=2, out_channels=3) | fields)


@pytest.mark.parametrize("make", [
    lambda run: Conv2d(Conv2dConfig(height=4, width=4, in_channels=2, out_channels=2), run),
    lambda run: MaxPool2d(MaxPool2dConfig(height=4, width=4, channels=2), run),
    lambda run: Conv1d(Conv1dConfig(rows=4, in_channels=2, out_channels=2), run),
])  # fmt: skip
def test_another_plane_is_refused(make: Any, run: Run) -> None:
    """One of another size, or one that a call bounds: what lay there before would be seen behind its last row."""
    part = make(run)
    part.fill({path: np.zeros(shape, np.float32) for path, shape in part.tensors().items()})
    with pytest.raises(ShapeError, match=r"legal: all of \[4, "):
        part.trace(x=((5, 2), np.float32))

    class Bounded(iron.Graph):
        def __init__(self) -> None:
            self.part = part

        def body(self, x: Any, *, n: iron.Scratchpad[np.int32]) -> Any:
            return self.part(x[:n])

    shape = (4, 2) if isinstance(part, Conv1d) else (4, 4, 2)
    with pytest.raises(ShapeError, match="bounded per call"):
        Bounded().trace(x=(shape, np.float32))
