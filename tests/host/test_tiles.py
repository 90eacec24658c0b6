"""Block weights in tiles: made once, kept for a mapped file, made again when a weight is replaced."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.protocol import Unavailable
from iron_core.cache.store import Cache, CacheWarning
from iron_core.declare.formats import (
    IQ4_NL,
    MXFP4,
    Q4_0,
    Q4_1,
    Q4_K,
    Q4NX,
    Q4NX_Q8,
    Q4NX_SIGNED,
    Q5_0,
    Q6_K,
    Q8_0,
    BlockQuant,
    PackedArray,
    SuperBlock,
    bfloat16,
)
from iron_core.errors import BackendUnavailable, CallError
from iron_host import tiling
from iron_host.backend import HostBackend
from iron_host.runtime import runtime
from iron_host.tiles import Tiles
from iron_lm.checkpoints.mapped import MappedFile
from iron_ops_aie import GEMM, GEMV, Dequant
from tests.superblocks import drawn

ROWS, DEPTH = 40, 64


class Two(iron.Graph):
    """A product with each of two weights."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = iron.weight(a), iron.weight(b)

    def body(self, x: Any) -> Any:
        if x.shape[0] == 1:
            rows = [GEMV(w, x.reshape(DEPTH), activations="int8_block").reshape(1, ROWS) for w in (self.a, self.b)]
        else:
            rows = [GEMM(x, w, b_col_maj=True, activations="int8_block") for w in (self.a, self.b)]
        return tuple(rows)


def weights(seed: int = 0) -> list[PackedArray]:
    rng = np.random.default_rng(seed)
    return [format.quantize(rng.standard_normal((ROWS, DEPTH)).astype(np.float32)) for format in (Q4_1, Q8_0)]


def agrees(host: Any, rows: int = 1) -> bool:
    x = np.random.default_rng(rows).standard_normal((rows, DEPTH)).astype(np.float32)
    return all(iron.allclose(got, want, 1e-5, 1e-5) for got, want in zip(host(x), host.graph.reference(x), strict=True))


def compiled(a: Any, b: Any) -> Any:
    return Two(a, b).compile(backend=HostBackend(strict=True), x=((1, DEPTH), np.float32))


def entries(folder: Any) -> list[Any]:
    return sorted((folder / "iron" / "host").glob("*/tiles.bin"))


@pytest.fixture
def in_a_file(tmp_path, monkeypatch):
    """Two weights in a file, kept as tiles however few they are. Returns (open the file, its path)."""
    monkeypatch.setattr(tiling, "WORTH_A_FILE", 1)
    monkeypatch.setattr(tiling, "Cache", lambda backend: Cache(backend, tmp_path))  # kernels stay where they are
    path = tmp_path / "weights.bin"

    def write(seed: int) -> None:
        path.write_bytes(b"".join([b"head" * 3, *(w.data.tobytes() for w in weights(seed))]))

    def opened() -> list[PackedArray]:
        file, found, at = MappedFile(path), [], 12
        for w in weights():
            found.append(PackedArray(file.view(at, w.nbytes, "w"), w.shape, w.format))
            at += w.nbytes
        return found

    write(0)
    return opened, write


def test_versions_share_tiles():
    """A second version of the same weights makes none of its own; rows agree with the reference in both."""
    host = compiled(*weights())
    host.add(x=((5, DEPTH), np.float32))
    assert agrees(host) and agrees(host, 5)
    one, many = host.versions.values()
    assert one.image.tiles == many.image.tiles and len(one.image.tiles) == 2
    memory = host._program.memory()
    before = memory.tiles(one.image.tiles, one.executable.runtime)
    assert all(a is b for a, b in zip(before, memory.tiles(many.image.tiles, many.executable.runtime), strict=True))


def test_a_replaced_weight_has_new_tiles():
    """write() reaches the products; the other weight's tiles stay."""
    host = compiled(*weights())
    assert agrees(host)
    new = weights(7)[0]
    host.write("a", new)
    x = np.random.default_rng(3).standard_normal((1, DEPTH)).astype(np.float32)
    assert iron.allclose(host(x)[0], Two(new, weights()[1]).reference(x)[0], 1e-5, 1e-5)


def test_a_files_tiles_are_kept(in_a_file, tmp_path):
    """One entry for a file; the next process over the same file maps it and makes nothing."""
    opened, _ = in_a_file
    assert agrees(compiled(*opened()))
    (entry,) = entries(tmp_path)
    stamp = entry.stat().st_mtime_ns
    host = compiled(*opened())
    assert agrees(host) and entries(tmp_path) == [entry] and entry.stat().st_mtime_ns == stamp
    tiles = host._program.memory().tiles(next(iter(host.versions.values())).image.tiles, None)
    base = tiles[0]
    while isinstance(base, np.ndarray):
        base = base.base
    assert not isinstance(base, bytes) and tiles[0].flags.writeable is False


@pytest.mark.parametrize("written", [1, 700, 2000, 5000])
def test_files_are_written_in_pieces(in_a_file, tmp_path, monkeypatch, written):
    """However much goes at once, the file is the same."""
    opened, _ = in_a_file
    assert agrees(compiled(*opened()))
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    monkeypatch.setattr(tiling, "WRITTEN", written)
    monkeypatch.setattr(tiling, "LAYOUT", 0)
    assert agrees(compiled(*opened()))
    assert [path.read_bytes() for path in entries(tmp_path)] == [whole] * 2


def replaced(path, content):
    """Another file in its place."""
    other = path.with_name("other.bin")
    other.write_bytes(content)
    os.utime(other, (1, 1))
    other.replace(path)


def written(path, content):
    """The same file with another content and the time it had."""
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, (1, 1))


@pytest.mark.parametrize("change", [replaced, written])
def test_another_files_tiles_are_others(in_a_file, tmp_path, change):
    """Whichever way it came to the place, with the size and the time of the one before."""
    opened, write = in_a_file
    path = tmp_path / "weights.bin"
    write(5)
    other = path.read_bytes()
    write(0)
    os.utime(path, (1, 1))
    first = compiled(*opened())
    assert agrees(first)
    change(path, other)
    second = compiled(*opened())
    assert agrees(second) and len(entries(tmp_path)) == 2
    x = np.ones((1, DEPTH), np.float32)
    assert not np.array_equal(first.graph.reference(x)[0], second.graph.reference(x)[0]) or change is written


def test_weights_of_another_shape_have_tiles_of_their_own(in_a_file, tmp_path):
    """The same bytes of the same file, as other rows of another length, are in tiles otherwise; one key is not for both."""
    opened, _ = in_a_file
    (_, b) = opened()
    mapped = b.data.reshape(-1)
    copied = mapped.copy()  # in memory: tiles that are made anew
    for rows, depth in ((ROWS, DEPTH), (ROWS // 2, DEPTH), (ROWS // 2, 2 * DEPTH), (ROWS, DEPTH)):
        wanted = [Tiles(0, 0, b.format, rows, depth)]
        kept, new = (tiling.made(wanted, lambda _, source=source: source, runtime(1))[0] for source in (mapped, copied))
        assert np.array_equal(kept, new)
    assert len(entries(tmp_path)) == 3


DAMAGE = {
    "the first bit": lambda at: at("tiles.bin", 0, b"\1"),
    "a bit in the middle": lambda at: at("tiles.bin", 3000, b"\x80"),
    "the last bit": lambda at: at("tiles.bin", -1, b"\x80"),
    "a page": lambda at: at("tiles.bin", 0, b"\xff" * 4096),
    "a sum": lambda at: at("tiles.sums", 0, b"\1"),
    "half of it": lambda at: at("tiles.bin", None, b""),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_made_again(in_a_file, tmp_path, damage):
    """Whatever its size: no product is of tiles that are not what was written, from the first call on."""
    opened, _ = in_a_file
    assert agrees(compiled(*opened()))
    (entry,) = entries(tmp_path)

    def at(name: str, place: int | None, mask: bytes) -> None:
        file = entry.with_name(name)
        content = bytearray(file.read_bytes())
        if place is None:
            content = content[: len(content) // 2]
        else:
            place %= len(content)
            mask = mask[: len(content) - place]
            content[place : place + len(mask)] = bytes(a ^ b for a, b in zip(content[place:], mask, strict=False))
        file.write_bytes(content)

    DAMAGE[damage](at)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert agrees(compiled(*opened()))
    assert [w.category for w in said] == [CacheWarning] and "building it again" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert agrees(compiled(*opened()))


def test_tiles_of_a_disk_that_keeps_nothing_stay_in_memory(in_a_file, monkeypatch):
    """What cannot be read back as it was written is not used."""
    opened, _ = in_a_file
    monkeypatch.setattr(tiling, "sums", lambda whole, engine: np.frombuffer(os.urandom(8), np.uint64))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert agrees(compiled(*opened()))
    assert "does not keep what is written to it" in str(said[-1].message)


def test_a_file_that_changes_while_it_is_read_has_no_entry(in_a_file, tmp_path, monkeypatch):
    """What was made of it is of no one file."""
    opened, write = in_a_file
    host = compiled(*opened())
    tile = tiling._write

    def meanwhile(*given: Any) -> None:
        write(5)
        tile(*given)

    monkeypatch.setattr(tiling, "_write", meanwhile)
    with pytest.warns(CacheWarning, match="was written to while it was read"):
        host(np.ones((1, DEPTH), np.float32))
    assert entries(tmp_path) == []


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 17])
def test_a_sum_is_of_every_byte(nbytes):
    """A change of any one byte changes the sum of its piece and no other; so does the number of zeros."""
    engine, content = runtime(2), np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    before = tiling.sums(content, engine)
    assert len(before) == -(-nbytes // tiling.SUMMED) and np.array_equal(before, tiling.sums(content.copy(), runtime(1)))
    for place in {0, nbytes // 3, nbytes // 2, nbytes - 1}:
        for bit in (1, 128):
            content[place] ^= bit
            (changed,) = np.flatnonzero(before != tiling.sums(content, engine))
            assert changed == place // tiling.SUMMED
            content[place] ^= bit
    zeros = [tiling.sums(np.zeros(n, np.uint8), engine)[0] for n in (1, 2, 8, 64, 128)]
    assert len(set(zeros)) == len(zeros)


def test_sums_tell_patterns_of_damage_apart():
    """The same bit in many words, words that change places, pages that do: what a plain sum would not see."""
    engine, content = runtime(2), np.random.default_rng(1).integers(0, 1 << 63, 1 << 14, np.uint64)
    before = tiling.sums(content.view(np.uint8), engine)[0]
    for stride in (1, 8, 64, 512):
        other = content.copy()
        other[::stride] ^= np.uint64(1 << 63)
        assert tiling.sums(other.view(np.uint8), engine)[0] != before
    for distance in (1, 8, 512):
        other = content.copy()
        other[[0, distance]] = other[[distance, 0]]
        assert tiling.sums(other.view(np.uint8), engine)[0] != before
    other = content.copy().reshape(-1, 512)
    other[[0, 1]] = other[[1, 0]]
    assert tiling.sums(other.view(np.uint8).reshape(-1), engine)[0] != before


def test_where_no_file_can_be_kept_tiles_stay_in_memory(in_a_file, monkeypatch):
    """A full disk costs memory, not the run; a warning says so."""
    opened, _ = in_a_file

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    host = compiled(*opened())
    monkeypatch.setattr(tiling, "_write", full)
    with pytest.warns(UserWarning, match=r"disk is full: No space left.*nothing is kept"):
        assert agrees(host)


def test_weights_that_are_inputs_are_read_as_they_are():
    """Blocks passed in at a call have no tiles, and give the same bits as a weight's."""

    class Given(iron.Graph):
        def body(self, w: Any, x: Any) -> Any:
            return GEMV(w, x, activations="int8_block")

    a, b = weights()
    x = np.random.default_rng(1).standard_normal(DEPTH).astype(np.float32)
    given = Given().compile(backend=HostBackend(strict=True), w=((ROWS, DEPTH), Q4_1), x=((DEPTH,), np.float32))
    (version,) = given.versions.values()
    assert version.image.tiles == ()
    assert np.array_equal(given(a, x), compiled(a, b)(x[None])[0][0])


#: Blocks that hold the numbers of FastFlowLM's chunks, a row in each.
ROW_BLOCKS = {
    Q4NX: BlockQuant("rows4", bits=4, group=32, scale=bfloat16, minimum=True),
    Q4NX_Q8: BlockQuant("rows8", bits=8, group=32, scale=bfloat16, signed=True),
}


def chunked(format: Any, rows: int, depth: int) -> PackedArray:
    return format.quantize(np.random.default_rng(rows + depth).standard_normal((rows, depth)).astype(np.float32))


def in_rows(tensor: PackedArray, format: Any) -> PackedArray:
    """The same numbers in another format."""
    own = tensor.format
    parts = {p.role: own.numbers(p, tensor.data, tensor.shape) for p in own.planes if p.role != "values"}
    return format.assembled(tensor.shape, values=own.integers(tensor.data, tensor.shape), **parts)


@pytest.mark.parametrize("format", ROW_BLOCKS, ids=str)
@pytest.mark.parametrize("written", [1, 3000, 40000, 1 << 20])
def test_chunks_are_in_the_same_tiles_as_rows(tmp_path, monkeypatch, format, written):
    """Byte for byte, without what fills chunks up; several matrices, made in memory or kept for a file in pieces of any size."""
    monkeypatch.setattr(tiling, "WORTH_A_FILE", 1)
    monkeypatch.setattr(tiling, "WRITTEN", written)
    monkeypatch.setattr(tiling, "Cache", lambda backend: Cache(backend, tmp_path))
    matrices, rows, depth = 3, 160, 320
    tensor = chunked(format, matrices * rows, depth)
    path = tmp_path / "weights.bin"
    path.write_bytes(b"head" * 5 + tensor.data.tobytes())
    mapped = MappedFile(path).view(20, tensor.nbytes, "w")
    of_rows = in_rows(tensor, ROW_BLOCKS[format])

    def tiles(raw: np.ndarray, format: Any) -> np.ndarray:
        return tiling.made([Tiles(0, 0, format, rows, depth, matrices)], lambda _: raw, runtime(2))[0]

    want = tiles(of_rows.data.reshape(-1), of_rows.format)
    assert want.size == of_rows.nbytes and np.array_equal(tiles(tensor.data.reshape(-1).copy(), format), want)
    assert entries(tmp_path) == []
    for _ in range(2):
        assert np.array_equal(tiles(mapped, format), want) and len(entries(tmp_path)) == 1


@pytest.mark.parametrize("format", (Q4NX, Q4NX_SIGNED, Q4NX_Q8), ids=str)
def test_chunks_are_multiplied_as_the_reference_says(format):
    """Whole and by rows of chunks, by a row and by several, in both arithmetics; their numbers too."""

    class All(iron.Graph):
        def __init__(self, w: Any) -> None:
            self.w = iron.weight(w)

        def body(self, x: Any) -> Any:
            rounded = dict(activations="int8_block")
            made = [GEMM(x, self.w, b_col_maj=True, **extra) for extra in ({}, rounded)]
            made += [GEMV(self.w[32:96], x[1], **extra) for extra in ({}, rounded)]
            return *made, Dequant(self.w[32:], T=np.float32)

    x = np.random.default_rng(1).standard_normal((7, 320)).astype(np.float32)
    host = All(chunked(format, 128, 320)).compile(backend=HostBackend(strict=True), x=(x.shape, np.float32))
    for got, want in zip(host(x), host.graph.reference(x), strict=True):
        assert iron.allclose(got, want, 1e-4, 1e-4)


@pytest.mark.parametrize("activations", ("exact", "int8_block"))
def test_equal_numbers_have_equal_products(activations):
    """A Q4_1 tensor and a q4nx tensor of the same scales and minima: a row, several rows, weights of the graph and of a call: the same
    bits."""

    class Both(iron.Graph):
        def __init__(self, w: Any) -> None:
            self.w = iron.weight(w)

        def body(self, x: Any, given: Any) -> Any:
            rows = [GEMM(x, each, b_col_maj=True, activations=activations) for each in (self.w, given)]
            return *rows, *(GEMV(each, x[0], activations=activations) for each in (self.w, given))

    rng = np.random.default_rng(0)
    shape, groups = (96, 320), (96, 10)
    numbers = dict(scales=rng.integers(1, 128, groups) / 256, minima=-rng.integers(0, 128, groups) / 32)
    values = rng.integers(0, 16, shape).astype(np.uint8)
    x = rng.standard_normal((6, shape[1])).astype(np.float32)
    made = []
    for format in (Q4_1, Q4NX):
        w = format.assembled(shape, values=values, **{role: a.astype(np.float32) for role, a in numbers.items()})
        host = Both(w).compile(backend=HostBackend(strict=True), x=(x.shape, np.float32), given=(shape, format))
        made.append([np.asarray(y).view(np.uint32).copy() for y in host(x, w)])
    for one, other in zip(*made, strict=True):
        assert np.array_equal(one, other)
    several, again, *alone = made[0]
    assert np.array_equal(several, again) and all(np.array_equal(several[0], row) for row in alone)


@pytest.mark.parametrize("rows", [1, 2, 3, 9, 40])
@pytest.mark.parametrize("format", [Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K, IQ4_NL, MXFP4, Q4NX], ids=lambda format: format.name)
def test_without_tiles_products_have_the_same_bits(format: Any, rows: int) -> None:
    """Of one row, of few and of many, of whole tiles and of rows that are left over."""
    depth = math.lcm(256, format.block[1])
    a, b = (_weight(format, -(-(48 + n) // format.block[0]) * format.block[0], depth) for n in (0, 1))
    x = np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)
    shape = {"x": (x.shape, np.float32)}
    hosts = [Beside(a, b).compile(backend=HostBackend(strict=True, tiles=tiles), **shape) for tiles in (True, False)]
    for got, want in zip(hosts[0](x), hosts[1](x), strict=True):
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    assert [len(next(iter(host.versions.values())).image.tiles) for host in hosts] == [2, 0]


def _weight(format: Any, rows: int, depth: int) -> PackedArray:
    if isinstance(format, SuperBlock) or format is Q5_0:
        return drawn(np.random.default_rng(rows), format, (rows, depth))
    return format.quantize(np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32))


class Beside(iron.Graph):
    """A product with each of two weights, whatever their shapes."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = iron.weight(a), iron.weight(b)

    def body(self, x: Any) -> Any:
        return tuple(GEMM(x, w, b_col_maj=True, activations="int8_block") for w in (self.a, self.b))


def test_without_tiles_nothing_is_kept(in_a_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the option, or by IRON_TILES, which it overrides: weights are read where the file is mapped."""
    opened, _ = in_a_file
    for option, variable in ((False, "1"), (None, "0")):
        monkeypatch.setenv("IRON_TILES", variable)
        host = Two(*opened()).compile(backend=HostBackend(strict=True, tiles=option), x=((1, DEPTH), np.float32))
        assert agrees(host) and not entries(tmp_path)
        read = host._program.memory().weights()
        assert len(read) == 2 and not any(part.flags.owndata or part.flags.writeable for part in read)
    assert agrees(Two(*opened()).compile(backend=HostBackend(tiles=True), x=((1, DEPTH), np.float32))) and entries(tmp_path)
    monkeypatch.setenv("IRON_TILES", "no")
    with pytest.raises(BackendUnavailable, match="IRON_TILES='no'; legal: 0 or 1"):
        compiled(*opened())
    reason = HostBackend().probe()
    assert isinstance(reason, Unavailable) and reason.fix == "Correct or unset IRON_TILES."
    with pytest.raises(CallError, match=r"tiles=1; legal: True or False"):
        HostBackend(tiles=1)  # type: ignore[arg-type]


def test_dense_panels_are_not_made_either() -> None:
    """A product in an order of its own has the same bits from rows as from panels."""

    class Own(iron.Graph):
        def __init__(self, w: Any) -> None:
            self.w = iron.weight(w)

        def body(self, x: Any) -> Any:
            return GEMM(x, self.w, b_col_maj=True, own_order=True)

    rng = np.random.default_rng(2)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, 48), (33, 48)))
    hosts = [Own(w).compile(backend=HostBackend(tiles=tiles), x=(x.shape, np.float32)) for tiles in (True, False)]
    np.testing.assert_array_equal(*(host(x).view(np.uint32) for host in hosts))
    assert [len(next(iter(host.versions.values())).image.tiles) for host in hosts] == [1, 0]
