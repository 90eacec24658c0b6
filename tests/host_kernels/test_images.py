"""Kernels of pictures: the contract's tables in every bit, its patches in every bit, whatever the threads."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.declare.rounding import round_to
from iron_host.kernels import PATCH_POSITIONS, RESAMPLE, RESAMPLE_TAPS
from iron_ops_aie import PatchPositions, Resample
from iron_ops_aie.images.table import make_table

from .conftest import DTYPES


def table(kernels, inputs, outputs, words, slots, chunks):
    """What the kernel makes."""
    made = np.full((chunks, words), -7, np.int32)
    slots = RESAMPLE_TAPS(taps=made, in_length=inputs, out_length=outputs, words=words, slots=slots or 0, chunks=chunks)
    kernels("resample_taps", slots, scratch=8 * (4 * inputs + 1), threads=2)
    return made


def test_tables(kernels, rng):
    """From any size to any other, in chunks of any size; those that do not fit, and of nothing."""
    for inputs, outputs in ((1080, 576), (1920, 1056), (480, 672), (3000, 7), (7, 3000)):
        assert np.array_equal(table(kernels, inputs, outputs, 4000, None, 16), make_table(inputs, outputs, 4000, None, 16))
    for _ in range(200):
        inputs, outputs = (int(n) for n in rng.integers(0, 300, 2))
        words, slots, chunks = int(rng.integers(9, 400)), int(rng.choice([0, 0, 1, 4, 16])) or None, int(rng.integers(1, 40))
        assert np.array_equal(table(kernels, inputs, outputs, words, slots, chunks), make_table(inputs, outputs, words, slots, chunks))


def patches(kernels, op, T, image, taps_w, taps_h, threads=1, **bounds):
    """What the kernel makes of a picture."""
    made = np.full((op.patches_out, 768), 9, DTYPES[T])
    size = dict(rows=op.height, out_rows=op.out_height, out_columns=op.out_width) | bounds
    more = dict(row_bytes=op.row_bytes, words=op.words, cores=op.cores, patches_out=op.patches_out, reach=op.reach, width=3 * op.out_width)
    slots = RESAMPLE(image=image, taps_w=taps_w, taps_h=taps_h, patches=made, **size, **more)
    kernels(f"resample<{T}>", slots, scratch=(op.reach + 4) * 3 * op.out_width, threads=threads)
    return made


@pytest.mark.parametrize("T", ["float", "bf16", "f16"])
def test_patches(kernels, rng, T):
    """Every picture size, bounds, and sharing of rows among threads."""
    for _ in range(12):
        height, width, rows, columns = (int(n) for n in (*rng.integers(1, 150, 2), *rng.integers(1, 6, 2)))
        op = Resample(height=height, width=width, out_height=16 * rows, out_width=16 * columns, cores=int(rng.integers(1, 9)), T=DTYPES[T])
        image = rng.integers(0, 256, (height, op.row_bytes)).astype(np.uint8)
        bound = dict(rows=int(rng.integers(1, height + 1)), out_rows=16 * int(rng.integers(0, rows + 1)))
        bound["out_columns"] = 16 * int(rng.integers(1, columns + 1))
        taps_w = make_table(int(rng.integers(1, width + 1)), bound["out_columns"], op.words, 16, op.chunks_w)
        taps_h = make_table(bound["rows"], bound["out_rows"], op.words, 16, op.chunks_h)
        small = op.bounded(height=bound["rows"], out_height=bound["out_rows"], out_width=bound["out_columns"])
        want = round_to(small.reference(image[: bound["rows"]], taps_w, taps_h), DTYPES[T])
        for threads in (1, 3):
            assert patches(kernels, op, T, image, taps_w, taps_h, threads, **bound).tobytes() == want.tobytes()


def test_tables_that_are_none_leave_memory_alone(kernels, rng):
    """Any words at all: what they say is cut to the picture and to the room there is."""
    op = Resample(height=40, width=30, out_height=32, out_width=48)
    image = rng.integers(0, 256, (40, op.row_bytes)).astype(np.uint8)
    for _ in range(30):
        taps_w, taps_h = (rng.integers(-(2**31), 2**31, op.shape(name)).astype(np.int32) for name in ("taps_w", "taps_h"))
        taps_w[:, 0], taps_h[:, 0] = 14, 14
        patches(kernels, op, "float", image, taps_w, taps_h, threads=2)


def test_positions(kernels, rng):
    """Every grid, windows of every size, whatever bounds it, whatever the threads."""
    for _ in range(60):
        pool, cores = (int(n) for n in rng.integers(1, 5, 2))
        rows, columns = (int(n) * pool for n in rng.integers(1, 9, 2))
        op = PatchPositions(rows=rows, columns=columns, pool=pool, cores=cores, places=rows * columns + int(rng.integers(0, 30)))
        valid = dict(rows=int(rng.integers(0, rows + 1)), columns=int(rng.integers(0, columns + 1)))
        want = op.bounded(**valid).reference()
        for threads in (1, 4):
            sources, positions = np.full(op.places, -1, np.int32), np.full((2, op.places), -1, np.int32)
            size = dict(valid_rows=valid["rows"], valid_columns=valid["columns"], pool=pool, cores=cores, places=op.places)
            slots = PATCH_POSITIONS(
                sources=sources, positions=positions, **size, source_rows=op.source_rows, position_rows=op.position_rows
            )
            kernels("patch_positions", slots, threads=threads)
            assert np.array_equal(sources, want[0]) and np.array_equal(positions, want[1])
