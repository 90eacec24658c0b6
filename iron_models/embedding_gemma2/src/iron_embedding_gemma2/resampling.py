"""`resampled`: samples at another rate."""

from __future__ import annotations

import math

import numpy as np

#: Zeros of the kernel on either side of its middle, and how sharply its window falls.
ZEROS, BETA = 32, 9.0
#: Samples that are made at a time.
BLOCK = 8192


def resampled(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """float64 samples at `rate` Hz as those at `wanted`: what lies below half of the lower rate, by a sine over its argument under a
    Kaiser window. As many as the clip lasts, rounded up."""
    wide, common = max(rate / wanted, 1.0), math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    count, reach = -(-len(samples) * up // down), math.ceil(ZEROS * wide)
    padded = np.pad(samples, (reach, reach + 1))
    # Output i lies at i * down / up: behind a whole number of inputs, by a part that comes again every `up` outputs.
    whole, part = np.divmod(np.arange(up) * down, up)
    each = np.arange(-reach, reach + 2)
    away = each - part[:, None] / up
    weights = np.sinc(away / wide) * np.i0(BETA * np.sqrt(np.clip(1 - (away / (reach + 1)) ** 2, 0, None)))
    weights /= weights.sum(1, keepdims=True)
    out = np.empty(count)
    for first in range(0, count, BLOCK):
        turn, phase = np.divmod(np.arange(first, min(first + BLOCK, count)), up)
        seen = (turn * down + whole[phase])[:, None] + each + reach
        out[first : first + len(turn)] = (weights[phase] * padded[np.minimum(seen, len(padded) - 1)]).sum(1)
    return out
