"""The state dict of a file that torch.save wrote: its tensors, as views of the map. Nothing in the file is run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from iron_core import Dense, Format
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.pickled import STORAGES, StoredTensor, read
from iron_lm.checkpoints.tensors import Tensors
from iron_lm.checkpoints.zipped import StoredZip


def state_dict(path: Path) -> Tensors:
    """The tensors of one file, by their names in the dict; CheckpointError if it is damaged, or holds something else.

    Tensors that share a storage share memory. One that is transposed, or a slice, is an array with its strides.
    """
    file = MappedFile(path)
    if file.read(0, min(4, file.size), "its first bytes") != b"PK\3\4":
        raise CheckpointError(f"{path}: not a zip file; torch before 1.6 wrote another kind, which is not read.")
    entries = StoredZip(file).entries
    pickles = [name for name in entries if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(pickles) != 1:
        raise CheckpointError(f"{path}: {len(pickles)} entries named data.pkl; a file torch.save wrote has one.")
    folder = pickles[0].removesuffix("data.pkl")
    order = entries.get(f"{folder}byteorder")
    if order is not None and bytes(order[:8]) != b"little":
        raise CheckpointError(f"{path}: its byte order is {bytes(order[:8])!r}; legal: little.")
    root = read(entries[pickles[0]], str(path))
    if not isinstance(root, dict):
        raise CheckpointError(f"{path}: holds a {type(root).__name__}, not a dict of tensors.")
    found = Tensors()
    for name, tensor in root.items():
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) < 1024:
            raise CheckpointError(f"{path}: {str(name)[:40]!r} names no tensor.")
        if not isinstance(tensor, StoredTensor):
            raise CheckpointError(f"{path}: {name} is a {type(tensor).__name__}, not a tensor.")
        why = _refused(tensor)
        if why:
            found.refused[name] = f"{path}: tensor {name} {why}."
        else:
            found[name] = _view(path, name, tensor, entries.get(f"{folder}data/{tensor.key}"))
    if not found.names:
        raise CheckpointError(f"{path}: holds no tensors.")
    return found


def _refused(tensor: StoredTensor) -> str:
    """Why a tensor is not taken, whatever its storage holds; "" if it is."""
    if tensor.kind not in STORAGES:
        return f"is a {tensor.kind[:40]}. Legal: {', '.join(STORAGES)}"
    if 0 in tensor.shape:
        return f"has shape {list(tensor.shape)}; legal: 1 or more along each axis"
    end = 0  # of what the axes so far reach, from the closest numbers to the farthest
    for stride, length in tensor.axes:
        if stride <= end:
            return f"has strides {list(tensor.strides)} for shape {list(tensor.shape)}; legal: each number in a place of its own"
        end += stride * (length - 1)
    return ""


def _view(path: Path, name: str, tensor: StoredTensor, storage: np.ndarray | None) -> tuple[tuple[int, ...], Format, np.ndarray]:
    if storage is None:
        raise CheckpointError(f"{path}: tensor {name} is in data/{tensor.key[:40]!r}, which the file lacks.")
    dtype, shape = STORAGES[tensor.kind], tensor.shape
    end = tensor.offset + 1 + sum(stride * (length - 1) for stride, length in tensor.axes)
    if tensor.numel * dtype.itemsize > storage.size or end > tensor.numel:
        raise CheckpointError(f"{path}: tensor {name} {list(shape)} lies outside its {storage.size} bytes.")
    raw = storage[tensor.offset * dtype.itemsize : end * dtype.itemsize]
    if raw.ctypes.data % dtype.itemsize:
        raw = raw.copy()  # torch aligns what it writes; others may not
    return shape, Dense(dtype), np.ndarray(shape, dtype, raw, 0, [stride * dtype.itemsize for stride in tensor.strides])
