"""Convolutions over time: near the exact result; a row's bits depend on no other row but those it meets."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import CAUSAL_CONV1D, DEPTHWISE_CONV1D

from .conftest import DTYPES, NORMED
from .test_rows import draw, near


@pytest.mark.parametrize("T, W", NORMED)
def test_depthwise_conv1d(kernels, rng, T, W):
    """Of any number of rows, channels and taps, rows before the first being zeros; rounded once."""
    for rows, channels, taps in ((1, 1, 1), (1, 9, 5), (3, 7, 4), (20, 64, 5), (33, 100, 3)):
        x, w = draw(rng, (rows, channels), T), draw(rng, (taps, channels), W)
        padded = np.concatenate([np.zeros((taps - 1, channels)), x.astype(np.float64)])
        terms = [w[j].astype(np.float64) * padded[j : j + rows] for j in range(taps)]
        y = np.zeros_like(x)
        made = dict(weight=w, channels=channels, taps=taps)
        kernels(f"depthwise_conv1d<{T}, {W}>", DEPTHWISE_CONV1D(x=x, y=y, valid=rows, **made), threads=3)
        assert near(y, sum(terms), T, floor=1e-6 * float(np.abs(terms).sum(0).max()) + 1e-30)
        for n in range(1, rows):
            part = np.zeros_like(x)
            kernels(f"depthwise_conv1d<{T}, {W}>", DEPTHWISE_CONV1D(x=x[:n].copy(), y=part, valid=n, **made))
            assert np.array_equal(part[:n], y[:n]) and not part[n:].any() and part.dtype == DTYPES[T]


@pytest.mark.parametrize("T, W", NORMED)
def test_causal_conv1d(kernels, rng, T, W):
    """A sequence in calls of any number of rows has the bits that it has in one, whatever the threads; past nothing, the state counts
    as zeros; it is left the last rows."""
    for rows, channels, taps in ((1, 1, 2), (7, 9, 4), (20, 100, 4), (9, 64, 6)):
        x, w = draw(rng, (rows, channels), T), draw(rng, (taps, channels), W)
        padded = np.concatenate([np.zeros((taps - 1, channels)), x.astype(np.float64)])
        terms = [w[j].astype(np.float64) * padded[j : j + rows] for j in range(taps)]

        def run(cuts, threads):
            state, made, at = draw(rng, (taps - 1, channels), T), [], 0
            for n in cuts:
                y = np.zeros((n, channels), DTYPES[T])
                slots = CAUSAL_CONV1D(x=x[at : at + n].copy(), weight=w, state=state, y=y, valid=n, past=at, channels=channels, taps=taps)
                kernels(f"causal_conv1d<{T}, {W}>", slots, threads=threads)
                made.append(y)
                at += n
            return np.concatenate(made), state

        y, state = run([rows], 3)
        assert near(y, sum(terms), T, floor=1e-6 * float(np.abs(terms).sum(0).max()) + 1e-30)
        assert np.array_equal(state.astype(np.float64), padded[rows:])
        for cuts, threads in (([1] * rows, 1), ([rows - rows // 2, rows // 2], 2)):
            again, left = run(cuts, threads)
            assert np.array_equal(again, y) and np.array_equal(left, state)
