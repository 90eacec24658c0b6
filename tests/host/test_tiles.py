"""Block weights in tiles: made once, kept for a mapped file, made again when a weight is replaced."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import Q4_1, Q8_0, PackedArray
from iron_core.image.cache import Cache, CacheWarning
from iron_host import tiling
from iron_lm.mapped import MappedFile
from iron_ops_aie import GEMM, GEMV

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
    return Two(a, b).compile(backend="host", strict=True, x=((1, DEPTH), np.float32))


def entries(folder: Any) -> list[Any]:
    return sorted((folder / "iron" / "host").glob("*/tiles.bin"))


@pytest.fixture
def in_a_file(tmp_path, monkeypatch):
    """Two weights in a file, kept as tiles however few they are. Returns (open the file, its path)."""
    monkeypatch.setattr(tiling, "WORTH_A_FILE", 1)
    monkeypatch.setattr(tiling, "Cache", lambda backend: Cache(backend, tmp_path))
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


def test_another_files_tiles_are_others(in_a_file, tmp_path):
    """A file that changed has tiles of its own."""
    opened, write = in_a_file
    assert agrees(compiled(*opened()))
    write(5)
    os.utime(opened.__closure__[0].cell_contents, ns=(1, 1))
    host = compiled(*opened())
    assert agrees(host) and len(entries(tmp_path)) == 2


def test_a_damaged_entry_is_made_again(in_a_file, tmp_path):
    """An entry cut short is replaced, with a warning."""
    opened, _ = in_a_file
    assert agrees(compiled(*opened()))
    (entry,) = entries(tmp_path)
    with entry.open("r+b") as file:
        file.truncate(100)
    with pytest.warns(CacheWarning, match="size"):
        assert agrees(compiled(*opened()))


def test_where_no_file_can_be_kept_tiles_stay_in_memory(in_a_file, monkeypatch):
    """A full disk costs memory, not the run; a warning says so."""
    opened, _ = in_a_file

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    host = compiled(*opened())
    monkeypatch.setattr(tiling, "_write", full)
    with pytest.warns(UserWarning, match="stay in memory: .*No space left"):
        assert agrees(host)


def test_weights_that_are_inputs_are_read_as_they_are():
    """Blocks passed in at a call have no tiles, and give the same bits as a weight's."""

    class Given(iron.Graph):
        def body(self, w: Any, x: Any) -> Any:
            return GEMV(w, x, activations="int8_block")

    a, b = weights()
    x = np.random.default_rng(1).standard_normal(DEPTH).astype(np.float32)
    given = Given().compile(backend="host", strict=True, w=((ROWS, DEPTH), Q4_1), x=((DEPTH,), np.float32))
    (version,) = given.versions.values()
    assert version.image.tiles == ()
    assert np.array_equal(given(a, x), compiled(a, b)(x[None])[0][0])
