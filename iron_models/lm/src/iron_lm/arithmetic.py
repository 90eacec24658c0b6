"""What a model computes in: of what a device has, of its weights' format, and as asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Backend, Dense, Format
from iron_core.backends.choose import choose
from iron_core.devices import device
from iron_core.errors import UsageError
from iron_lm.run import ARITHMETIC, DTYPES


def dtype_on(backend: str | Backend | None, dev: str | None) -> str | None:
    """The dtype that a model has there where nobody asks for another: NPUs' arrays compute in bfloat16; None elsewhere, the
    weights' own."""
    return "bfloat16" if device(choose(backend, dev).dev).is_npu else None


def scale_on(backend: str | Backend | None, dev: str | None, asked: str | None = None) -> str:
    """How a quantised model scales activations there: as asked, else a fixed scale on an NPU and each row's own elsewhere.
    UsageError for each row's own on an NPU, whose arrays multiply sums by one number."""
    found = device(choose(backend, dev).dev)
    if found.is_npu and asked == "dynamic":
        raise UsageError(f"activation_scale=dynamic on {found.name}, whose arrays multiply sums by one number. Legal: fixed.")
    return asked or ("fixed" if found.is_npu else "dynamic")


def arithmetic_of(
    block: Format | None, stored: np.dtype, dtype: str | None, activations: str | None, widened: bool = False
) -> dict[str, Any]:
    """`Run`'s dtype, cache_dtype and activations, from the weights' format and what was asked for.

    widened: quantised weights that run as float32.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype={dtype}; legal: {', '.join(DTYPES)}.")
    if activations is not None and activations not in ARITHMETIC:
        raise UsageError(f"activations={activations}; legal: {', '.join(ARITHMETIC)}.")
    if block is not None and dtype is None:
        return dict(dtype="float32", cache_dtype="float16", activations=activations or "int8_block")
    if activations == "int8_block":
        raise UsageError("activations=int8_block needs block-quantised weights; these are widened or dense. Legal: exact.")
    if widened and dtype is None:
        return dict(dtype="float32", cache_dtype="float16", activations="exact")
    kept = dtype or Dense(stored).name
    # float16 is stored, never computed with.
    return dict(dtype="float32" if kept == "float16" else kept, cache_dtype=kept, activations="exact")
