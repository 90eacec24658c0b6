"""`Xclbin`: a binary that somebody else built for an NPU."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from iron_core.errors import ParamError, printable

MAGIC = b"xclbin2\0"
#: Where the header has the file's length and the number of its sections; where the table of sections begins, and an entry of it:
#: kind, name, padding, offset, length.
_LENGTH, _COUNT, _TABLE, _ENTRY = 0x130, 0x1C0, 0x1C8, struct.Struct("<I16s4xQQ")
#: Kinds of the sections that are looked at.
EMBEDDED_METADATA, AIE_PARTITION = 2, 32
#: Bytes of the largest file, and of the largest XML in one; real ones have a few hundred thousand, and a few thousand.
_LARGEST, _LARGEST_XML = 1 << 30, 1 << 20
_KERNEL = re.compile(rb"<kernel\s[^<>]*?\bname=\"([^\"<>]{1,256})\"")


def _path(given: Any) -> Path:
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise ParamError(f"Xclbin({given!r}); legal: the path of a file.")
    return Path(os.fsdecode(given))


@attrs.frozen(eq=False)
class Xclbin:
    """`Xclbin(path)`: the file of a device's configuration, as XRT loads it, for an operator whose array nobody here builds.

    kernels: the names of what it can run. digest: SHA-256 of its bytes, by which two are one. ParamError for what is no such
    file, is cut short, or holds no kernel of an NPU.
    """

    path: Path = attrs.field(converter=_path)
    digest: str = attrs.field(init=False)
    kernels: tuple[str, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        data = self._read()
        object.__setattr__(self, "digest", hashlib.sha256(data).hexdigest())
        object.__setattr__(self, "kernels", self._kernels(data))

    def _wrong(self, why: str) -> ParamError:
        return ParamError(printable(f"Xclbin({str(self.path)!r}): {why}.", 300))

    def _read(self) -> bytes:
        try:
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
                raise self._wrong("not a file")
            if status.st_size > _LARGEST:
                raise self._wrong(f"{status.st_size} bytes; legal: at most {_LARGEST}")
            return self.path.read_bytes()
        except ParamError:
            raise
        except OSError as error:
            raise self._wrong(error.strerror or str(error)) from None
        except ValueError as error:  # a NUL in a name
            raise self._wrong(str(error)) from None

    def _kernels(self, data: bytes) -> tuple[str, ...]:
        """The kernels' names, every offset on the way checked."""
        if data[: len(MAGIC)] != MAGIC:
            raise self._wrong("no xclbin: it does not begin with 'xclbin2'")
        if len(data) < _TABLE:
            raise self._wrong(f"cut short: {len(data)} bytes, and a header has {_TABLE}")
        (length,) = struct.unpack_from("<Q", data, _LENGTH)
        if length != len(data):
            raise self._wrong(f"cut short or damaged: {len(data)} bytes, and its header says {length}")
        sections = dict(self._sections(data))
        if AIE_PARTITION not in sections:
            raise self._wrong("no section AIE_PARTITION (32), so it is for no NPU")
        text = sections.get(EMBEDDED_METADATA, memoryview(b""))[:_LARGEST_XML]
        names = tuple(name.decode("utf-8", "backslashreplace") for name in _KERNEL.findall(text))
        if not names:
            raise self._wrong("no kernel in its section EMBEDDED_METADATA (2)")
        return names

    def _sections(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Kind and bytes of each section; of a damaged file many may be most of it."""
        (count,) = struct.unpack_from("<I", data, _COUNT)
        end, view = _TABLE + count * _ENTRY.size, memoryview(data)
        if end > len(data):
            raise self._wrong(f"damaged: a table of {count} sections ends at byte {end} of {len(data)}")
        for at in range(_TABLE, end, _ENTRY.size):
            kind, _, offset, size = _ENTRY.unpack_from(data, at)
            if offset < end or offset + size > len(data):
                raise self._wrong(f"damaged: section {kind} has bytes {offset} to {offset + size} of {len(data)}")
            yield kind, view[offset : offset + size]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Xclbin) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def name(self) -> str:
        """What labels show."""
        return f"{self.path.stem}_{self.digest[:8]}"

    def __repr__(self) -> str:
        return f"Xclbin({str(self.path)!r}, {self.digest[:8]})"

    def __str__(self) -> str:
        return self.path.name
