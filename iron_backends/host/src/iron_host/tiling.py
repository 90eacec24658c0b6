"""Making tiles: once for a weight, from then on mapped from the cache.

The tiles of a mapped file's weights are one cache entry, keyed by the identity of the file; those of an array in memory are
made anew in every process, from one whose bytes are made when they are asked for a few at a time: only its tiles stay.

Beside the tiles are sums of their pieces. All of them are checked each time tiles are mapped, before anything is computed
from one: that reads the tiles once, as fast as memory or the disk gives them, which is what a single step of a decoder does,
and leaves their pages where the first step finds them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from iron_core.cache.entry import About
from iron_core.cache.keys import FileIdentity, digest
from iron_core.cache.store import Cache, optional, warn
from iron_core.declare.formats import LazyPackedArray
from iron_core.errors import CacheError, printable
from iron_core.image.arena import guard_bytes
from iron_core.side_by_side import side_by_side
from iron_host import build
from iron_host.anonymous import address, anonymous
from iron_host.kernels import CHECKSUM, PACK_BLOCKS
from iron_host.runlist import STEP, StepArrays
from iron_host.runtime import Runtime
from iron_host.tiles import Piece, Tiles

#: What every tensor begins at a multiple of, the bytes from which tiles are kept in a file, those written at once, and those
#: a sum is of.
ALIGN, WORTH_A_FILE, WRITTEN, SUMMED = 64, 4 << 20, 16 << 20, 1 << 20
#: Changes whenever tiles are laid out, written or summed otherwise.
LAYOUT = 4
_TILES, _SUMS = "tiles.bin", "tiles.sums"

#: Bytes of arrays that are made at once, to be put in tiles.
MADE = 256 << 20

#: Where a resident is, by number: its bytes (uint8), or an array that makes them.
Residents = Callable[[int], np.ndarray | LazyPackedArray]


def bytes_of(place: np.ndarray | LazyPackedArray) -> np.ndarray:
    """The bytes (uint8) of a resident."""
    return place.data.reshape(-1) if isinstance(place, LazyPackedArray) else place


def made(wanted: Sequence[Tiles], residents: Residents, engine: Runtime) -> list[np.ndarray]:
    """The bytes (uint8) of each of `wanted`."""
    found: dict[Tiles, np.ndarray] = {}
    files: dict[FileIdentity, list[tuple[int, Tiles]]] = {}
    for one in wanted:
        origin = _origin(residents(one.resident))
        if origin is not None:
            files.setdefault(origin[0], []).append((origin[1] + one.offset, one))
    for file, parts in files.items():
        if sum(one.nbytes for _, one in parts) >= WORTH_A_FILE:
            found.update(_from_file(file, sorted(parts, key=lambda part: part[0]), residents, engine))
    rest = [one for one in wanted if one not in found]
    own = (
        [anonymous(one.nbytes, "the weights' tiles") for one in rest]
        if guard_bytes()
        else _placed(rest, anonymous(_size(rest), "the weights' tiles"))
    )
    found.update(zip(rest, own, strict=True))
    for group in _grouped(rest, residents):
        _fill([(one.whole, found[one]) for one in group], residents, engine)
    return [found[one] for one in wanted]


def _grouped(tiles: Sequence[Tiles], residents: Residents) -> Iterator[list[Tiles]]:
    """Those whose bytes are there already, then the others, `MADE` bytes at a time, or one that has more."""
    lazy = [one for one in tiles if isinstance(residents(one.resident), LazyPackedArray)]
    yield [one for one in tiles if one not in lazy]
    group: list[Tiles] = []
    for one in lazy:
        if group and sum(other.nbytes for other in group) + one.nbytes > MADE:
            yield group
            group = []
        group.append(one)
    yield group


class _Unkept(Exception):
    """Why tiles cannot be kept."""


def _from_file(
    file: FileIdentity, parts: list[tuple[int, Tiles]], residents: Residents, engine: Runtime
) -> dict[Tiles, np.ndarray]:
    """Tiles of one file's tensors, mapped from the cache; none where the cache takes no file."""
    tiles = [one for _, one in parts]
    key = digest("tiles", LAYOUT, file, [(at, t.unit.source or t.unit.symbol, t.rows, t.depth, t.matrices) for at, t in parts])

    def write(folder: Path) -> None:
        with open(folder / _TILES, "wb", buffering=0) as out:
            _write(tiles, residents, engine, out)
        if file.written_to():
            raise _Unkept("the file was written to while it was read.")
        (folder / _SUMS).write_bytes(sums(_mapped(folder / _TILES), engine).tobytes())

    try:
        cache = Cache("host")
        for _ in range(3):
            entry = cache.entry(key, write, about=About("tiles", file.path), own_checks=(_TILES,))
            try:
                whole, written = _mapped(entry / _TILES), (entry / _SUMS).read_bytes()
            except FileNotFoundError:  # another process found it damaged and took it away
                continue
            if sums(whole, engine).tobytes() == written:
                return dict(zip(tiles, _placed(tiles, whole), strict=True))
            warn(f"cache entry {printable(entry)}: {_TILES} has another content than when it was written; building it again.")
            cache.discard(key)
        raise _Unkept(f"{printable(entry)} does not keep what is written to it.")
    except CacheError:
        with optional():
            raise
    except (_Unkept, OSError) as error:
        warn(f"the tiles of {printable(file.path)} stay in memory: {error}")
    return {}


def sums(whole: np.ndarray, engine: Runtime) -> np.ndarray:
    """The sum (uint64) of each `SUMMED` bytes of an array, by every thread."""
    found = np.zeros(-(-whole.size // SUMMED), np.uint64)
    steps = np.zeros(1, STEP)
    steps[0]["kernel"] = ctypes.cast(build.runtime().iron_checksum, ctypes.c_void_p).value
    CHECKSUM.write(steps[0], data=address(whole), sums=address(found), bytes=whole.size, piece=SUMMED)
    arrays = StepArrays(steps)
    engine.run(engine.prepare(arrays, 1, 0, 0), None)
    return found


def _write(tiles: Sequence[Tiles], residents: Residents, engine: Runtime, out: BinaryIO) -> None:
    """All of them one after another into a file, in pieces that the system can keep in large pages of its cache."""
    buffer, at = anonymous(WRITTEN + ALIGN, "a piece of tiles"), 0
    work: list[tuple[Piece, np.ndarray]] = []

    def flush() -> None:
        nonlocal at
        _fill(work, residents, engine)
        left = buffer[:at].data
        while left:
            left = left[out.write(left) :]
        work.clear()
        buffer[:at] = 0
        at = 0

    for one in tiles:
        for piece in one.pieces(WRITTEN):
            if at + piece.nbytes > buffer.size - ALIGN:
                flush()
            if piece.nbytes > buffer.size - ALIGN:  # a single tile that is longer
                buffer = anonymous(piece.nbytes + ALIGN, "a piece of tiles")
            work.append((piece, buffer[at : at + piece.nbytes]))
            at += piece.nbytes
        at = _aligned(at)
    flush()


def _mapped(path: Path) -> np.ndarray:
    """A file's bytes, mapped; read into large pages where the system has them for files."""
    with open(path, "rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            whole.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(whole, np.uint8)


def _size(tiles: Sequence[Tiles]) -> int:
    return sum(_aligned(one.nbytes) for one in tiles)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def _placed(tiles: Sequence[Tiles], whole: np.ndarray) -> list[np.ndarray]:
    """One after another in `whole`."""
    places, at = [], 0
    for one in tiles:
        places.append(whole[at : at + one.nbytes])
        at += _aligned(one.nbytes)
    return places


def _fill(work: Sequence[tuple[Piece, np.ndarray]], residents: Residents, engine: Runtime) -> None:
    """Make tiles where they shall be, with every thread."""
    if not work:
        return
    kernels = build.load([piece.tiles.unit for piece, _ in work])
    steps = np.zeros(len(work), STEP)
    wanted = list(dict.fromkeys(piece.tiles.resident for piece, _ in work))
    lazy = [number for number in wanted if isinstance(residents(number), LazyPackedArray)]
    made = dict(zip(lazy, side_by_side(lambda number: bytes_of(residents(number)), lazy), strict=True))
    there = {number: made[number] if number in made else bytes_of(residents(number)) for number in wanted}
    for row, (piece, target) in zip(steps, work, strict=True):
        row["kernel"] = kernels[piece.tiles.unit]
        source = address(there[piece.tiles.resident]) + piece.offset
        size = {"N": piece.rows, "K": piece.tiles.depth, "matrices": piece.matrices}
        PACK_BLOCKS.write(row, w=source, tiles=address(target), **size)
    arrays = StepArrays(steps)
    engine.run(engine.prepare(arrays, len(work), 0, 0), None)


def _origin(array: np.ndarray | LazyPackedArray) -> tuple[FileIdentity, int] | None:
    """Which file an array is a part of, and at which byte: the `origin` of the map below it."""
    if isinstance(array, LazyPackedArray):
        return None
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    origin = getattr(base, "origin", None)
    if origin is None:
        return None
    return origin, address(array) - address(np.frombuffer(base, np.uint8))
