"""`logistic` and `silu` in numpy, as references and twins compute them: of numbers far below zero, of which e^-x is infinite, too."""

from __future__ import annotations

from typing import Any

import numpy as np


def logistic(x: Any) -> np.ndarray:
    """1 / (1 + e^-x), in x's dtype."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def silu(x: Any) -> np.ndarray:
    """x / (1 + e^-x), in x's dtype."""
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x)))
