"""What stands before the numbers in a file of vectors: numpy's, or safetensors'."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np

from iron_core.errors import UsageError, printable

#: What safetensors calls the one tensor.
TENSOR = "embeddings"


def header(path: Path, rows: int, width: int) -> bytes:
    """Of float32 (rows, width), by the file's ending; the numbers follow, row by row. UsageError for another ending."""
    if path.suffix == ".npy":
        made = io.BytesIO()
        np.lib.format.write_array_header_1_0(made, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
        return made.getvalue()
    if path.suffix == ".safetensors":
        tensor = {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, 4 * rows * width]}
        text = json.dumps({TENSOR: tensor}).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text
    raise UsageError(f"--out {printable(path)}: legal: a name that ends in .npy or .safetensors.")
