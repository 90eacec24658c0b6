"""The dtypes a dense tensor may have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from iron_core.errors import FormatError

bfloat16 = np.dtype(ml_dtypes.bfloat16)

#: Every dtype a dense tensor may have, by the name used in messages, keys and file names.
DTYPES: dict[str, np.dtype] = {
    "bfloat16": bfloat16,
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
}


def as_dtype(spec: Any) -> np.dtype:
    """The `numpy.dtype` of a name, a scalar type or a dtype; FormatError for one Iron does not carry."""
    try:
        dtype = DTYPES[spec] if isinstance(spec, str) and spec in DTYPES else np.dtype(spec)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in DTYPES.values():
        raise FormatError(f"dtype={spec!r}: not a dtype Iron carries. Legal: {', '.join(DTYPES)}.")
    return dtype
