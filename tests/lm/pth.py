"""Files as torch.save writes them, and as it does not, without torch: the pickle's instructions one by one, in a zip."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage", "int64": "LongStorage"}


def text(word: str) -> bytes:
    raw = word.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(n: int) -> bytes:
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(1 << 31) <= n < 1 << 31:
        return b"J" + struct.pack("<i", n)
    raw = n.to_bytes((n.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def many(*parts: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(parts) + b"t"


def tensor(key: str, kind: str, numel: int, offset: int, shape: Any, strides: Any) -> bytes:
    """A call of torch's function that makes a tensor of a storage."""
    storage = many(text("storage"), b"ctorch\n" + kind.encode() + b"\n", text(key), text("cpu"), number(numel)) + b"Q"
    hooks = b"ccollections\nOrderedDict\n)R"
    arguments = many(storage, number(offset), many(*map(number, shape)), many(*map(number, strides)), b"\x89", hooks)
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"


def pickled(entries: dict[str, bytes]) -> bytes:
    """A dict of what these instructions make."""
    return b"\x80\x02}(" + b"".join(text(name) + made for name, made in entries.items()) + b"u."


def archive(
    path: Path, pickle: bytes, storages: dict[str, bytes], *, compress: bool = False, order: bytes = b"little", shift: int = 0
) -> Path:
    """The zip file of a pickle and its storages. shift: bytes that numbers begin behind multiples of 64, where torch has them."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as zipped:
        zipped.writestr("archive/data.pkl", pickle)
        zipped.writestr("archive/byteorder", order)
        for key, data in storages.items():
            entry = zipfile.ZipInfo(f"archive/data/{key}")
            entry.compress_type = zipped.compression
            pad = -(raw.tell() + 30 + len(entry.filename) + 4) % 64 + shift
            entry.extra = struct.pack("<HH", 0x4246, pad) + bytes(pad)
            zipped.writestr(entry, data)
        zipped.writestr("archive/version", b"3\n")
    path.write_bytes(raw.getvalue())
    return path


def save(path: Path, tensors: dict[str, np.ndarray], **options: Any) -> Path:
    """Arrays as torch.save has them: each in a storage of its own, in the order it lies in memory; an array of several names once."""
    entries, storages, keys = {}, {}, {}
    for name, array in tensors.items():
        key = keys.setdefault(id(array), str(len(keys)))
        laid = array if array.flags.f_contiguous else np.ascontiguousarray(array)
        strides = [s // laid.itemsize for s in laid.strides]
        entries[name] = tensor(key, STORAGES[laid.dtype.name], laid.size, 0, laid.shape, strides)
        storages[key] = laid.tobytes("A")
    return archive(path, pickled(entries), storages, **options)


def far(path: Path, pickle: bytes, storage: bytes, place: int) -> Path:
    """An archive of one storage that begins beyond 4 GB, in the zip64 form that takes; the file is sparse."""
    entries = {"archive/data.pkl": (pickle, 0), "archive/data/0": (storage, place)}
    central = b""
    with path.open("wb") as file:
        for name, (data, at) in entries.items():
            file.seek(at)
            file.write(b"PK\3\4" + bytes(22) + struct.pack("<HH", len(name), 0) + name.encode() + data)
            extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), at)
            sizes = struct.pack("<IIHHH", 0xFFFFFFFF, 0xFFFFFFFF, len(name), len(extra), 0)
            central += b"PK\1\2" + bytes(16) + sizes + bytes(8) + struct.pack("<I", 0xFFFFFFFF) + name.encode() + extra
        begin = file.tell()
        file.write(central)
        record = struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, len(entries), len(entries), len(central), begin)
        file.write(b"PK\6\6" + record + b"PK\6\7" + struct.pack("<IQI", 0, begin + len(central), 1))
        file.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    return path
