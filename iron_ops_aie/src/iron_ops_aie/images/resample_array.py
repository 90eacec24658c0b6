"""The array of `Resample`: cores that all read one stream of the picture's slices and one of tables.

A core keeps the tables of its patch columns. It makes lines of its pixels row by row, keeps the last of them, as many as a filter
reaches, and from these the lines of a row of patches. A memory tile puts the patches of a column's cores side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Buffer,
    ObjectFifo,
    ObjectType,
    Pattern,
    Tile,
    Worker,
    bfloat16,
    if_,
    maximum,
    minimum,
    nearest,
    range_,
    require,
    require_dtype,
    require_npu,
    require_whole,
)
from iron_core.array.fit import require_memory
from iron_ops_aie.images.kernels_resample import LINE, MOST, SIDE, SLICE, WORDS, ResampleKernels
from iron_ops_aie.images.table import HEADER, SLOT, read_chunk

#: Numbers of a patch.
PATCH = SIDE * LINE


class ResampleArray:
    """How a `Resample` is computed on an array."""

    def kernels(self: Any) -> ResampleKernels:
        """A line of every row that the longest filter of a chunk reaches is kept."""
        return ResampleKernels(self.words, self.reach)

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        """As many cores of a column as there are, of those that share them equally."""
        require_npu(self, dev)
        require_dtype(self, bfloat16, "T")
        rows = (self.column_cores,) if self.column_cores else range(dev.core_rows, 0, -1)
        found = next((n for n in rows if self.cores % n == 0), 1)
        return self.evolve(column_cores=found, num_aie_columns=self.num_aie_columns or max(1, self.cores // found))

    def compatible(self: Any, dev: Any) -> None:
        require_dtype(self, bfloat16, "T")
        columns, each, cores = self.num_aie_columns, self.column_cores, self.cores
        require(
            columns * each == cores,
            f"Resample: num_aie_columns={columns} x column_cores={each} is not cores={cores}. Legal: cores={columns * each}.",
        )
        if dev is not None:
            legal = [n for n in range(1, dev.cores + 1) if any(n % r == 0 and n // r <= dev.columns for r in range(1, dev.core_rows + 1))]
            require(
                columns <= dev.columns and each <= dev.core_rows,
                f"Resample: cores={cores} in num_aie_columns={columns} of column_cores={each}; {dev} has {dev.columns} columns of "
                f"{dev.core_rows}. Nearest legal: cores={nearest(cores, legal)}.",
            )
        widest = MOST * cores * SIDE
        require(
            self.out_width <= widest,
            f"Resample: out_width={self.out_width}; cores={cores} make {MOST} patch columns each. Legal: out_width={widest}.",
        )
        require_whole(self, "patches_out", cores, f"patches of cores={cores}")
        if dev is not None:
            require_memory(self, dev, f"Give fewer words=. Legal: words={WORDS}.")

    # -- the array ---------------------------------------------------------------------------------

    def array(self: Any, target: Any) -> None:
        k, cores, kept = self.kernels(), self.cores, self.reach

        def core(number: int, image: Any, tables: Any, patches: Any, calls: Any, held: Any, *numbers: Any) -> None:
            keep, across, settle, down, give = calls
            own, sums, lines, pending, done = held
            rows, slices, tables_w, tables_h, patch_rows, patch_columns, each = numbers
            rounds = patch_columns // cores + 1
            for at in range_(tables_w):
                chunk, place = tables.acquire(), at // cores
                with if_((at % cores).equals(number)), if_(place < MOST):
                    keep(chunk, own.sub(place * self.words, self.words))
                tables.release()
            done[0] = 0
            for _ in range_(patch_rows):
                chunk = tables.acquire()
                for y in range_(SIDE):
                    slot = y * ((minimum(chunk[1], kept) + 1) // 2 + SLOT) + HEADER
                    end = minimum(chunk[slot] + chunk[slot + 1], rows)
                    for row in range_(done[0], end):
                        for part in range_(slices):
                            across(part * SLICE, image.acquire(), own, sums)
                            image.release()
                        settle(own, sums, lines.sub(row % kept * (MOST * LINE), (MOST, LINE)))
                    done[0] = maximum(done[0], end)
                    down(y, chunk, lines, pending)
                tables.release()
                for place in range_(rounds):
                    patch = pending.sub(minimum(place, MOST - 1) * PATCH, (SIDE, LINE))
                    give(patch_columns - place * cores - number, patch, patches.acquire())
                    patches.release()
            # What no row of patches took.
            for _ in range_((rows - done[0]) * slices):
                image.acquire()
                image.release()
            for _ in range_(tables_h - patch_rows):
                tables.acquire()
                tables.release()
            for _ in range_(each - patch_rows * rounds):
                give(0, pending.sub(0, (SIDE, LINE)), patches.acquire())
                patches.release()

        image = ObjectFifo(self.image.tile, depth=self.image.depth, name="image")
        image.prod(tile=self.image.lane(0))
        tables = ObjectFifo(self.taps_w.tile, depth=self.taps_w.depth, name="tables")
        tables.prod(tile=self.taps_w.lane(0))
        calls = [k.keep(), k.across(), k.settle(), k.down(), k.give()]
        values = [self.image_rows, self.row_slices, self.tables_w, self.tables_h, self.patch_rows, self.patch_columns, self.each]
        kinds = dict(own=k.tables, sums=k.sums, lines=k.lines, pending=k.pending, done=ObjectType.of(1, np.int32))
        for column in range(self.num_aie_columns):
            first = column * self.column_cores
            joined = ObjectFifo(self.patches.tile, depth=self.patches.depth, name=f"patches{column}")
            joined.cons(tile=self.patches.lane(column))
            names = [f"patch{first + row}" for row in range(self.column_cores)]
            offsets = [row * PATCH for row in range(self.column_cores)]
            parts = joined.prod().join(offsets, [k.given] * self.column_cores, names=names)
            for number, part in enumerate(parts, first):
                # Zeros: columns that a core does not have are no table, and nobody may read what nobody wrote.
                held = [Buffer(t.shape, t.dtype, name=f"{n}{number}", initial_value=(0,) * t.elements) for n, t in kinds.items()]
                args = [number, image.cons(), tables.cons(), part.prod(), calls, held]
                Worker(core, args, values=values, tile=Tile("core", column), name=f"core{number}")

    def sequence(self: Any, rt: Any) -> None:
        rt.preamble()
        each, row = self.column_cores * PATCH, self.cores * PATCH
        for lane in range(self.num_aie_columns):
            rt.drain("patches", lane, Pattern(lane * each, (self.patches_out // self.cores, each), (row, 1)), wait=True)
        rt.fill("taps_w", 0, Pattern.whole((self.chunks_w * self.words,)))
        # Of these a core may read what no patch needs behind the last patch.
        rt.fill("taps_h", 0, Pattern.whole((self.chunks_h * self.words,)), via="taps_w", wait=True)
        count = rt.tiles("rows", "image", 1)
        rt.fill("image", 0, Pattern.whole((self.height, self.row_bytes)), size_by=count and (0, count), wait=True)

    def composed(self: Any, image: Any, taps_w: Any, taps_h: Any) -> Any:
        """Eight patch columns at a time, row by row, by the kernels' references."""
        k, kept = self.kernels(), self.reach
        down, across = self.out_height // SIDE, self.out_width // SIDE
        out = np.zeros((down, self.pad, PATCH), bfloat16)
        for first in range(0, across, MOST):
            own = np.zeros(k.tables.shape, np.int32)
            own[: min(MOST, across - first)] = taps_w[first : min(first + MOST, across)]
            made = np.zeros((self.height, MOST, LINE), np.uint8)
            for row, bytes in enumerate(image):
                sums = np.zeros(k.sums.shape, np.int32)
                for at in range(0, self.row_bytes, SLICE):
                    sums = k.across().reference(at, bytes[at : at + SLICE], own, sums)
                made[row] = k.settle().reference(own, sums)
            for at in range(down):
                patches = np.zeros(k.pending.shape, np.uint8)
                for y in range(SIDE):
                    slots = read_chunk(taps_h[at], SIDE)
                    seen = slots.starts[y] + np.arange(slots.counts[y])
                    lines = np.zeros(k.lines.shape, np.uint8)
                    lines[seen % kept] = made[seen]
                    patches = k.down().reference(y, taps_h[at], lines, patches)
                for place in range(min(MOST, across - first)):
                    out[at, first + place] = k.give().reference(1, patches[place]).reshape(-1).astype(bfloat16)
        whole = np.zeros((self.patches_out, PATCH), bfloat16)
        whole[: down * self.pad] = out.reshape(-1, PATCH)
        return whole
