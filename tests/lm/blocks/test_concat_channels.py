"""`ConcatChannels` alone: the channels of two tensors side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import ShapeError
from iron_lm.blocks.concat_channels import ConcatChannels, ConcatChannelsConfig
from iron_lm.run import Run
from tests.lm.blocks.calling import called

CONFIG = ConcatChannelsConfig(rows=6, first=4, second=10)


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_it_is_its_twin(shape: tuple[int, ...], backend: str, run: Run) -> None:
    """To the bit, of rows and of a plane."""
    part = ConcatChannels(CONFIG, run)
    part.fill({})
    a, b = (np.random.default_rng(n).standard_normal((*shape, n)).astype(np.float32) for n in (4, 10))
    got = called(part, a, b, backend=backend)
    np.testing.assert_array_equal(got, part.twin({}, a, b))
    np.testing.assert_array_equal(got, np.concatenate([a, b], -1).reshape(6, 14))


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_arrays_move_them(dev: str) -> None:
    """To the bit."""
    part = ConcatChannels(CONFIG, Run(16, 16))
    part.fill({})
    a, b = (np.random.default_rng(n).standard_normal((6, n)).astype(iron.bfloat16) for n in (4, 10))
    assert np.array_equal(called(part, a, b, backend="sim", dev=dev), np.concatenate([a, b], -1))


class Bounded(iron.Graph):
    """The first n rows of both."""

    def __init__(self, part: ConcatChannels) -> None:
        self.part = part

    def body(self, a: Any, b: Any, *, n: iron.Scratchpad[np.int32], m: iron.Scratchpad[np.int32]) -> Any:
        return self.part(a[:n], b[:n] if self.part.config.rows == 6 else b[:m])


def test_rows_that_a_call_bounds_stay_bounded(backend: str, run: Run) -> None:
    """By the same number of both, else it is refused."""
    a, b = (np.random.default_rng(n).standard_normal((6, n)).astype(np.float32) for n in (4, 10))
    graph = Bounded(ConcatChannels(CONFIG, run))
    graph.part.fill({})
    compiled = graph.compile(backend=backend, a=(a.shape, a.dtype), b=(b.shape, b.dtype))
    for n in (3, 6, 1):
        np.testing.assert_array_equal(compiled(a, b, n=n, m=n), np.concatenate([a, b], -1)[:n])
    apart = Bounded(ConcatChannels(ConcatChannelsConfig(rows=5, first=4, second=10), run))
    with pytest.raises(ShapeError, match="bounded differently"):
        apart.trace(a=((5, 4), np.float32), b=((5, 10), np.float32))


def test_other_channels_are_refused(run: Run) -> None:
    """With what would be legal."""
    part = ConcatChannels(CONFIG, run)
    with pytest.raises(ShapeError, match="legal: 6 rows of 4"):
        part.trace(a=((6, 5), np.float32), b=((6, 10), np.float32))
