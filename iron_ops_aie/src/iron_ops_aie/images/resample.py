"""`Resample`: a picture, resized and cut into patches."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, Value, bfloat16, nearest
from iron_core.errors import ParamError
from iron_ops_aie.images.kernels_resample import CHANNELS, LINE, SIDE, SLICE, WORDS, fraction
from iron_ops_aie.images.resample_array import ResampleArray
from iron_ops_aie.images.table import HEADER, make_table, read_chunk, slot_words, window
from iron_ops_aie.rules import floats_only


class Resample(ResampleArray, Operator):
    """Resize a picture of uint8 RGB as torch's antialiased bicubic does, and cut it into patches of 16 x 16 pixels.

    image: (height, row_bytes), each row `width` pixels of three bytes, padded to whole slices of 4096 bytes. taps_w, taps_h:
    (chunks_w, words) and (chunks_h, words), the tables that `ResampleTaps(words=, slots=16)` makes from width to out_width and
    from height to out_height. patches: (patches, 768) of float dtype `T`, a patch's rows one after the other, channels last,
    each number a pixel / 255 rounded to float32 first. Rows are resized before columns.

    Patch (py, px) is row py * pad + px, where pad = (columns // cores + 1) * cores and columns = out_width // 16: a row of
    patches ends with zeros, and so does what lies behind the last. Where a table says that it does not fit, all is zero.
    `rows` bounds the image's height, `out_rows` and `out_columns` the size it gets (multiples of 16); how wide the
    image is, taps_w says.

    The array: every core reads the picture and the tables, and makes patch columns k, k + cores, ..., 8 at most.

    Errors: ParamError for sizes that are not whole patches, rows that are not whole slices, tables or patches too few.
    """

    height: int = Param()
    width: int = Param()
    out_height: int = Param()
    out_width: int = Param()
    row_bytes: int = Param(default=lambda op: -(-op.width * CHANNELS // SLICE) * SLICE)
    words: int = Param(default=WORDS, array=True)
    chunks_w: int = Param(default=lambda op: -(-op.out_width // SIDE))
    chunks_h: int = Param(default=lambda op: -(-op.out_height // SIDE))
    cores: int = Param(default=16, array=True)
    patches_out: int = Param(default=lambda op: op.out_height // SIDE * op.pad)
    T: Any = DType(default=bfloat16)
    num_aie_columns: int = Auto()
    column_cores: int = Auto()
    image = In(height, row_bytes, dtype=np.uint8, tile=SLICE, broadcast=True)
    taps_w = In(chunks_w, words, dtype=np.int32, tile=words, broadcast=True)
    taps_h = In(chunks_h, words, dtype=np.int32)
    patches = Out(patches_out, SIDE * LINE, dtype=T, tile=(column_cores, SIDE * LINE), per=num_aie_columns)
    rows = Extent(height)
    out_rows = Extent(out_height)
    out_columns = Extent(out_width)
    image_rows = Value(derive=lambda op: op.rows)
    row_slices = Value(derive=lambda op: op.row_bytes // SLICE)
    tables_w = Value(derive=lambda op: op.chunks_w)
    tables_h = Value(derive=lambda op: op.chunks_h)
    patch_rows = Value(derive=lambda op: op.out_rows // SIDE)
    patch_columns = Value(derive=lambda op: op.out_columns // SIDE)
    #: Patches that each core gives.
    each = Value(derive=lambda op: op.patches_out // op.cores)

    test = Testing(
        Case(height=37, width=53, out_height=48, out_width=32, lower=True),
        Case(height=101, width=64, out_height=16, out_width=48, cores=2, lower=True),
        Case(height=60, width=70, out_height=48, out_width=64, cores=2, bounds=dict(rows=37, out_rows=32, out_columns=48), lower=True),
        Case(height=20, width=1400, out_height=32, out_width=160, cores=4, chunks_h=16, lower=True),
        Case(height=45, width=31, out_height=32, out_width=96, T=np.float32),
        Case(height=16, width=19, out_height=16, out_width=16, cores=1, patches_out=5, lower=True),
        Case(height=480, width=640, out_height=672, out_width=912, T=np.float32, bench=True),
        draw=lambda op: dict(image=_image, taps_w=op.table("width"), taps_h=op.table("height")),
    )

    def validate(self) -> None:
        floats_only(self, "T")
        for name in ("out_height", "out_width"):
            have = getattr(self, name)
            if have < 1 or have % SIDE:
                raise ParamError(f"Resample: {name}={have}; legal: multiples of {SIDE}. Nearest legal: {nearest(have, SIDE)}.")
        if self.row_bytes % SLICE or self.row_bytes < self.width * CHANNELS:
            least = -(-self.width * CHANNELS // SLICE) * SLICE
            raise ParamError(f"Resample: row_bytes={self.row_bytes} for width={self.width}; legal: a multiple of {SLICE}, {least} or more.")
        least = HEADER + SIDE * slot_words(5)
        if self.words < least:
            raise ParamError(f"Resample: words={self.words}; legal: {least} or more, a header and {SIDE} slots of five weights.")
        for name, extent in (("chunks_w", "out_width"), ("chunks_h", "out_height")):
            have, least = getattr(self, name), getattr(self, extent) // SIDE
            if have < least:
                raise ParamError(f"Resample: {name}={have} for {extent}={getattr(self, extent)}; legal: {least} or more.")
        if self.cores < 1:
            raise ParamError(f"Resample: cores={self.cores}; legal: 1 or more.")
        least = self.out_height // SIDE * self.pad
        if self.patches_out < least:
            raise ParamError(f"Resample: patches_out={self.patches_out}; legal: {least} or more, {self.pad} for each row of patches.")

    @property
    def pad(self) -> int:
        """Rows of `patches` for one row of patches."""
        cores = max(1, self.cores)
        return (self.out_width // SIDE // cores + 1) * cores

    @property
    def reach(self) -> int:
        """Weights of an output that a table has room for."""
        return 2 * ((self.words - HEADER) // SIDE - slot_words(0)) - 1

    def table(self, axis: str) -> np.ndarray:
        """The table of "width" or "height" that this operator takes."""
        chunks = self.chunks_w if axis == "width" else self.chunks_h
        return make_table(getattr(self, axis), getattr(self, f"out_{axis}"), self.words, SIDE, chunks)

    def bounded(self, **extents: int) -> Any:
        # A call bounds what is computed; the tensors stay as they are.
        kept = {name: getattr(self, name) for name in ("row_bytes", "chunks_w", "chunks_h", "patches_out")}
        return super().bounded(**kept | extents)

    def reference(self, image: Any, taps_w: Any, taps_h: Any) -> Any:
        down, across = self.out_height // SIDE, self.out_width // SIDE
        out = np.zeros((self.patches_out, SIDE * LINE), np.float32)
        rows, wide = len(image), image.shape[1] // CHANNELS
        pixels = np.asarray(image)[:, : wide * CHANNELS].reshape(rows, wide, CHANNELS)
        lines = _resized(pixels.swapaxes(0, 1), taps_w, across)  # (x, row, channel)
        grid = _resized(lines.swapaxes(0, 1), taps_h, down)  # (y, x, channel)
        tiled = grid.reshape(down, SIDE, across, SIDE * CHANNELS).swapaxes(1, 2).reshape(down, across, SIDE * LINE)
        out[: down * self.pad].reshape(down, self.pad, SIDE * LINE)[:, :across] = fraction(tiled)
        return out

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    def ops(self) -> int:
        across, down = window(self.width, self.out_width), window(self.height, self.out_height)
        return 2 * CHANNELS * self.out_width * (self.height * across + self.out_height * down)


def _resized(numbers: np.ndarray, table: Any, chunks: int) -> np.ndarray:
    """uint8 (inputs, ...) to (16 * chunks, ...) by the first chunks of a table."""
    made = np.zeros((chunks * SIDE, *numbers.shape[1:]), np.uint8)
    for at in range(chunks):
        slots = read_chunk(np.asarray(table[at]), SIDE)
        if slots.precision < 1:
            return np.zeros_like(made)
        for i, (start, count, weights) in enumerate(zip(slots.starts, slots.counts, slots.weights, strict=True)):
            sums = np.tensordot(weights[:count].astype(np.int64), numbers[start : start + count].astype(np.int64), 1)
            made[at * SIDE + i] = np.clip((sums + (1 << (slots.precision - 1))) >> slots.precision, 0, 255)
    return made


def _image(op: Any, rng: np.random.Generator) -> np.ndarray:
    """Noise, half of it black and white, which overshoots."""
    noise = rng.integers(0, 256, (op.height, op.row_bytes))
    sharp = rng.integers(0, 2, noise.shape) * 255
    return np.where(rng.random((op.height, 1)) < 0.5, noise, sharp).astype(np.uint8)
