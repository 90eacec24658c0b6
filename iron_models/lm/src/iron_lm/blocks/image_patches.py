"""`ImagePatches`: an image, resized and cut into the patches that a vision tower reads; how large an image becomes under a budget."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError, ShapeError
from iron_lm.fields import counted
from iron_lm.parts.part import Part, Weights
from iron_lm.run import Run
from iron_ops_aie import Copy, PatchPositions, Resample, ResampleTaps
from iron_ops_aie.images.table import HEADER, slot_words, window

#: Pixels on a patch's side; bytes of a pixel; bytes of which a row of pixels has a whole number.
SIDE, CHANNELS, SLICE = 16, 3, 4096
#: Tokens that models of the family give an image at most: a frame of a video the first, an image the third by default.
BUDGETS = (70, 140, 280, 560, 1120)
#: Words of a table's chunk at least: what cores have room for.
WORDS = HEADER + SIDE * slot_words(39)


@attrs.frozen(kw_only=True)
class ImagePatchesConfig:
    """budget: tokens at most that an image becomes, each of `pool` x `pool` patches. rows, columns: patches down and across at most;
    by default an image may be three and a half times as wide as high, or as high as wide. room: tokens whose patches there are
    places for, `budget` by default; more where a product on an array takes another number of rows. positions: rows of the tables that
    positions are looked up in, whose last is zero."""

    budget: int = attrs.field(default=280, validator=counted)
    pool: int = attrs.field(default=3, validator=counted)
    rows: int = attrs.field(default=attrs.Factory(lambda self: self.side, takes_self=True), validator=counted)
    columns: int = attrs.field(default=attrs.Factory(lambda self: self.side, takes_self=True), validator=counted)
    room: int = attrs.field(default=attrs.Factory(lambda self: self.budget, takes_self=True), validator=counted)
    positions: int = attrs.field(default=10241, validator=counted)

    def __attrs_post_init__(self) -> None:
        for name in ("rows", "columns"):
            if (have := getattr(self, name)) % self.pool:
                nearest = have // self.pool * self.pool or self.pool
                raise ParamError(f"ImagePatchesConfig: {name}={have}; legal: multiples of pool={self.pool}. Nearest: {nearest}.")
        if self.room < self.budget:
            raise ParamError(f"ImagePatchesConfig: room={self.room}; legal: budget={self.budget} or more.")
        if self.positions <= max(self.rows, self.columns):
            raise ParamError(f"ImagePatchesConfig: positions={self.positions}; legal: {max(self.rows, self.columns) + 1} or more.")

    @property
    def side(self) -> int:
        """Patches of a square under the budget, and 1.9 times as many: 1.9^2 is the widest image's width by its height."""
        return self.pool * math.ceil(1.9 * math.sqrt(self.budget))

    @property
    def patches(self) -> int:
        """Those that there are places for."""
        return self.room * self.pool**2

    @property
    def pixels(self) -> int:
        """Those of the largest image under the budget."""
        return self.budget * (self.pool * SIDE) ** 2

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of patches of an image of so many pixels: as much of it as the budget allows, in whole tokens, its
        shape kept as nearly as those allow. ParamError for an image that has no pixels or is too narrow for this config."""
        if height < 1 or width < 1:
            raise ParamError(f"ImagePatches: an image of {width} x {height} pixels; legal: 1 x 1 or more.")
        factor = math.sqrt(self.pixels / (height * width))
        unit = self.pool * SIDE
        down, across = (math.floor(factor * n / unit) for n in (height, width))
        if not down:
            down, across = 1, min(width // height, self.budget)
        elif not across:
            down, across = min(height // width, self.budget), 1
        rows, columns = down * self.pool, across * self.pool
        if rows > self.rows or columns > self.columns:
            size = f"an image of {width} x {height} pixels becomes {columns} x {rows} patches"
            raise ParamError(f"ImagePatches: {size}; legal: columns={self.columns} x rows={self.rows} at most, as it was built for.")
        return rows, columns

    def fitting(self, height: int, width: int) -> ImagePatchesConfig:
        """This one, or for an image too narrow for it one for such: as many rows, or columns, as the budget and the tables allow."""
        try:
            self.grid(height, width)
        except ParamError:
            most = min(self.budget, (self.positions - 1) // self.pool) * self.pool
            across = lambda have: max(1, self.budget // (have // self.pool + 1)) * self.pool  # noqa: E731  # of what is longer than that
            wide = dict(rows=across(self.columns), columns=most)
            return attrs.evolve(self, **(wide if width > height else dict(rows=most, columns=across(self.rows))))
        return self

    def tokens(self, height: int, width: int) -> int:
        """Those that an image of so many pixels becomes."""
        rows, columns = self.grid(height, width)
        return rows * columns // self.pool**2

    def words(self, height: int, width: int) -> int:
        """Of a chunk of a resize's table, for every image up to so many pixels high and wide: a side shrinks at most twice as much
        as an area does, for it becomes whole tokens."""
        shrinks = 2 * math.sqrt(height * width / self.pixels)
        longest = max(height, width) / (self.budget * self.pool * SIDE)
        return max(WORDS, HEADER + SIDE * slot_words(window(math.ceil(1000 * max(shrinks, longest)), 1000)))

    def laid(self, image: Any) -> np.ndarray:
        """An image, uint8 (height, width, 3), as the block takes it: rows of whole runs of bytes."""
        image = checked(image)
        height, width, _ = image.shape
        out = np.zeros((height, -(-width * CHANNELS // SLICE) * SLICE), np.uint8)
        out[:, : width * CHANNELS] = image.reshape(height, width * CHANNELS)
        return out

    def sizes(self, height: int, width: int) -> dict[str, int]:
        """The per-call values for an image of so many pixels."""
        rows, columns = self.grid(height, width)
        return dict(height=height, width=width, rows=rows, columns=columns)


class ImagePatches(Part):
    """picture: uint8 (most rows, bytes of a row), RGB, see `ImagePatchesConfig.laid` -> patches (config.patches, 768) and positions
    int32 (2, config.patches).

    The image's `height` x `width` pixels are resized to `rows` x `columns` patches, as torch's antialiased bicubic does it; pixels / 255,
    channels last. A token's patches stand one after the other, row by row, and so do the tokens; behind the last are zeros. Positions
    are x, then y, of each patch, and behind the last the last row of a table of `positions`.
    """

    def __init__(self, config: ImagePatchesConfig, run: Run, cores: int = 16) -> None:
        c = self.config = config
        self.run, self.cores = run, cores
        self._pad = (c.columns // cores + 1) * cores
        self.made = iron.state((c.rows * self._pad, SIDE * SIDE * CHANNELS), as_dtype(run.dtype))

    def body(
        self,
        picture: Any,
        *,
        height: iron.Scratchpad[np.int32],
        width: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        columns: iron.Scratchpad[np.int32],
    ) -> Any:
        c, (tall, wide) = self.config, (picture.shape[0], picture.shape[1] // CHANNELS)
        words = c.words(tall, wide)

        def table(most: int, patches: int, size: Any, made: Any) -> Any:
            op = ResampleTaps(in_size=most, out_size=patches * SIDE, words=words, slots=SIDE)
            return op(in_length=size, out_length=made * SIDE)

        down, across = table(tall, c.rows, height, rows), table(wide, c.columns, width, columns)
        sizes = dict(width=wide, out_height=c.rows * SIDE, out_width=c.columns * SIDE, cores=self.cores)
        bounds: dict[str, Any] = dict(rows=height, out_rows=rows * SIDE, out_columns=columns * SIDE)
        made = Resample(picture, across, down, self.made, **sizes, T=as_dtype(self.run.dtype), **bounds)
        tables = dict(source_rows=c.rows * self._pad, position_rows=c.positions)
        op = PatchPositions(rows=c.rows, columns=c.columns, pool=c.pool, cores=self.cores, places=c.patches, **tables)
        sources, positions = op(valid_rows=rows, valid_columns=columns)
        return Copy(made[sources]), positions

    def twin(self, weights: Weights, image: Any) -> tuple[np.ndarray, np.ndarray]:
        """(patches, positions) of the patches alone, of an image uint8 (height, width, 3); positions are (patches, 2)."""
        c, image = self.config, np.asarray(image)
        rows, columns = c.grid(*image.shape[:2])
        lines = _shrunk(image.swapaxes(0, 1), columns * SIDE)
        pixels = _shrunk(lines.swapaxes(0, 1), rows * SIDE).astype(np.float32) / np.float32(255)
        down, across = rows // c.pool, columns // c.pool
        split = pixels.reshape(down, c.pool, SIDE, across, c.pool, SIDE, CHANNELS)
        at = np.indices((rows, columns)).reshape(2, down, c.pool, across, c.pool)
        patches = split.transpose(0, 3, 1, 4, 2, 5, 6).reshape(rows * columns, -1)
        return patches, at.transpose(1, 3, 2, 4, 0).reshape(-1, 2)[:, ::-1]


def checked(image: Any) -> np.ndarray:
    """uint8 (height, width, 3), as given. ShapeError for what is none."""
    legal = f"legal: uint8 (height, width, {CHANNELS})"
    try:
        image = np.asarray(image)
    except ValueError:  # lists of several lengths
        raise ShapeError(f"ImagePatches: no image; {legal}.") from None
    if image.ndim != 3 or image.shape[2] != CHANNELS or image.dtype != np.uint8:
        raise ShapeError(f"ImagePatches: an image of {image.dtype} {list(image.shape)}; {legal}.")
    return image


def _shrunk(numbers: np.ndarray, outputs: int) -> np.ndarray:
    """uint8 (inputs, ...) to (outputs, ...): Keys' cubic of a = -0.5, as wide as the image shrinks, its weights rounded to as many bits
    as keep the largest within 15."""
    inputs = len(numbers)
    scale = inputs / outputs
    wide = max(scale, 1.0)
    made = []
    for at in range(outputs):
        middle = scale * (at + 0.5)
        first, last = max(0, int(middle - 2 * wide + 0.5)), min(inputs, int(middle + 2 * wide + 0.5))
        x = np.abs((np.arange(first, last) - middle + 0.5) * (1 / wide))
        near, far = (1.5 * x - 2.5) * x * x + 1, (((x - 5) * x + 8) * x - 4) * -0.5
        weights = np.where(x < 1, near, np.where(x < 2, far, 0))
        made.append((first, weights / math.fsum(weights)))
    largest = max(weights.max() for _, weights in made)
    bits = next((b for b in range(22) if int(0.5 + largest * 2 ** (b + 1)) >= 1 << 15), 22)
    out = np.empty((outputs, *numbers.shape[1:]), np.uint8)
    for at, (first, weights) in enumerate(made):
        whole = np.trunc(weights * 2**bits + np.copysign(0.5, weights)).astype(np.int64)
        sums = np.tensordot(whole, numbers[first : first + len(whole)].astype(np.int64), 1)
        out[at] = np.clip((sums + (1 << bits >> 1)) >> bits, 0, 255)
    return out
