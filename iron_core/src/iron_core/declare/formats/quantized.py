"""`Quantized`: formats whose planes say everything, read and written by those planes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from iron_core.declare.formats.format import Format, PackedArray
from iron_core.declare.formats.numbers import real_numbers
from iron_core.declare.formats.plane import Plane, joined
from iron_core.declare.formats.rounded import rounded, unrounded
from iron_core.errors import FormatError


class Quantized(Format):
    """Integers with scales: a value is `scale * (q - zero) + minimum`.

    A matrix is its blocks in row-major order, each holding its planes one after another; then the planes that stand apart,
    in their order. A subclass says which planes there are and how large a block is.
    """

    __slots__ = ()

    @property
    def block_bytes(self) -> int:
        return sum(plane.nbytes(self.block) for plane in self.planes if not plane.apart)

    @property
    def by_rows(self) -> bool:
        return self.block[0] == 1 and not any(plane.apart for plane in self.planes)

    @property
    def group(self) -> int:  # type: ignore[override]
        """Numbers of a row that share a scale; 0 where a row, or a matrix, has one."""
        return next(plane.group[1] for plane in self.planes if plane.role == "scales")

    @property
    def scale_offsets(self) -> tuple[tuple[int, np.dtype], ...]:
        found, at = [], 0
        for plane in self.planes:
            if plane.apart:
                continue
            if not plane.integer:
                found += [(at + i, plane.dtype) for i in range(0, plane.nbytes(self.block), plane.dtype.itemsize)]
            at += plane.nbytes(self.block)
        return tuple(found)

    def unit(self, shape: tuple[int, ...]) -> tuple[int, int]:
        if any(plane.apart for plane in self.planes):
            return _matrix(shape)
        return super().unit(shape)

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        found = super().stored(shape)
        if not any(plane.apart for plane in self.planes):
            return found
        matrix = _matrix(shape)
        blocks = matrix[0] // self.block[0] * (matrix[1] // self.block[1])
        return (*shape[:-2], blocks * self.block_bytes + sum(p.nbytes(matrix) for p in self.planes if p.apart))

    def _places(self, shape: tuple[int, ...]) -> Mapping[Plane, int]:
        """The byte at which each plane begins: in a block, or, where it stands apart, in a matrix of this shape."""
        rows, columns = _matrix(shape)
        inside, apart = 0, rows // self.block[0] * (columns // self.block[1]) * self.block_bytes
        found = {}
        for plane in self.planes:
            found[plane] = apart if plane.apart else inside
            if plane.apart:
                apart += plane.nbytes((rows, columns))
            else:
                inside += plane.nbytes(self.block)
        return found

    def numbers(self, plane: Plane, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The stored numbers of a plane, (*shape[:-2], rows, columns) of its own, in `data` of shape `stored(shape)`. Those that only
        fill up a block are left out."""
        lead, matrix, at = shape[:-2], _matrix(shape), self._places(shape)[plane]
        if plane.apart:
            return plane.read(joined(data, len(lead))[..., at : at + plane.nbytes(matrix)], matrix)
        raw = self._blocks(data, shape)[..., at : at + plane.nbytes(self.block)]
        cells = plane.read(raw, self.block).swapaxes(-3, -2)  # block row, row, block column, column
        found = cells.reshape(*lead, cells.shape[-4] * cells.shape[-3], cells.shape[-2] * cells.shape[-1])
        return found[..., : plane.grid(matrix)[1]]

    def _blocks(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """A view of the blocks, (*shape[:-2], block rows, block columns, block_bytes)."""
        lead, (rows, columns) = shape[:-2], _matrix(shape)
        high, across = rows // self.block[0], -(-columns // self.block[1])
        return joined(data, len(lead))[..., : high * across * self.block_bytes].reshape(*lead, high, across, self.block_bytes)

    def integers(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """uint8 or int8 of the logical shape: the stored integers, no zero point subtracted."""
        found: Any = None
        for plane in self.planes:
            if plane.role == "values":
                part = self.numbers(plane, data, shape)
                if plane.shift:
                    part <<= plane.shift
                found = part if found is None else np.bitwise_or(found, part, out=found)
        return found.reshape(shape)

    def assembled(self, shape: tuple[int, ...], **numbers: np.ndarray) -> PackedArray:
        """The tensor of these stored numbers: by role, as `numbers()` gives them (integers whole, as `integers()` does)."""
        data = np.zeros(self.stored(shape), np.uint8)
        lead, matrix, places = shape[:-2], _matrix(shape), self._places(shape)
        for plane in self.planes:
            given = numbers[plane.role]
            if plane.role == "values":
                given = (given >> plane.shift).reshape(*lead, *matrix)
            at = places[plane]
            if plane.apart:
                joined(data, len(lead))[..., at : at + plane.nbytes(matrix)] = plane.write(given, matrix)
                continue
            high, wide = plane.grid(self.block)
            given = _filled_up(given, wide)
            cells = given.reshape(*lead, given.shape[-2] // high, high, given.shape[-1] // wide, wide).swapaxes(-3, -2)
            self._blocks(data, shape)[..., at : at + plane.nbytes(self.block)] = plane.write(cells, self.block)
        return PackedArray(data, shape, self)

    def _role(self, role: str) -> Plane | None:
        return next((plane for plane in self.planes if plane.role == role), None)

    def _wide(self, role: str, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
        """What a role's numbers stand for, float32 and broadcastable over (*shape[:-2], rows, 1, groups, 1)."""
        plane = self._role(role)
        return None if plane is None else plane.widened(self.numbers(plane, data, shape))[..., :, None, :, None]

    def dequantize(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """float32 of the logical shape: integers less zero, times scale, plus minimum, each rounded to float32."""
        given = PackedArray(data, shape, self)  # FormatError for what stores no tensor
        data, shape = given.data, given.shape
        values = self.integers(data, shape).astype(np.float32)
        if self.zero:
            values -= np.float32(self.zero)
        for role, apply in (("zeros", np.subtract), ("scales", np.multiply), ("minima", np.add)):
            numbers = self._wide(role, data, shape)
            if numbers is not None:
                cut = values.reshape(*shape[:-2], *_cut(_matrix(shape), numbers.shape))
                with np.errstate(invalid="ignore", over="ignore"):  # scales that are no numbers are found elsewhere
                    apply(cut, numbers, out=cut)
        return values

    def quantize(self, values: Any) -> PackedArray:
        """Numbers (..., columns) rounded to this format; see `rounded`. FormatError for planes that it has no rule for."""
        why = unrounded(self.planes)
        if why:
            raise FormatError(f"{self.name} is only read: {why}, and nothing here rounds numbers to it.")
        return self._quantized(real_numbers(values, f"{self.name}: quantize()").astype(np.float32), rounded)

    def _quantized(self, values: np.ndarray, rule: Callable[..., dict[str, np.ndarray]]) -> PackedArray:
        """float32 numbers rounded by a rule, called as `rounded` is."""
        if 0 in values.shape or not values.shape:
            raise FormatError(f"{self.name}: quantize() of shape {values.shape}; legal: 1 or more along each of one axis or more.")
        self.stored(values.shape)  # FormatError unless it is whole blocks
        shape = values.shape
        scales = self._role("scales")
        assert scales is not None
        grid = scales.grid(_matrix(shape))
        cut = values.reshape(*shape[:-2], *_cut(_matrix(shape), (grid[0], 1, grid[1], 1)))
        cells = cut.swapaxes(-3, -2)
        found = rule(self.planes, joined(cells, cells.ndim - 2))
        found["values"] = found["values"].reshape(cells.shape).swapaxes(-3, -2).reshape(shape)
        return self.assembled(shape, **found)

    def fields(self, data: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        ints = self.integers(data, shape).astype(np.int32) - self.zero
        scales, minima = self._by_row("scales", data, shape), self._by_row("minima", data, shape)
        zeros, plane = self._wide("zeros", data, shape), self._role("zeros")
        if plane is not None and plane.integer:
            cut = ints.reshape(*shape[:-2], *_cut(_matrix(shape), zeros.shape))  # type: ignore[union-attr]
            cut -= zeros.astype(np.int32)  # type: ignore[union-attr]
        elif plane is not None:  # zero points that are no integers come off as minima
            with np.errstate(invalid="ignore", over="ignore"):
                minima = -scales * self._by_row("zeros", data, shape)  # type: ignore[operator]
        return ints, scales, minima  # type: ignore[return-value]

    def _by_row(self, role: str, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
        plane = self._role(role)
        if plane is None:
            return None
        wide = plane.widened(self.numbers(plane, data, shape))
        if wide.shape[-2] != _matrix(shape)[0]:
            wide = np.repeat(wide, _matrix(shape)[0] // wide.shape[-2], -2)
        return wide.reshape(*shape[:-1], wide.shape[-1])

    @property
    def zero(self) -> int:
        """Subtracted from every integer."""
        return next(plane.zero for plane in self.planes if plane.role == "values")


def _filled_up(numbers: np.ndarray, columns: int) -> np.ndarray:
    """The numbers (..., rows, n), zeros behind each row up to a multiple of `columns`."""
    missing = -numbers.shape[-1] % columns
    return np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, missing)]) if missing else numbers


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the last two axes; a vector is one row."""
    return (shape[-2], shape[-1]) if len(shape) > 1 else (1, shape[-1])


def _cut(matrix: tuple[int, int], numbers: tuple[int, ...]) -> tuple[int, int, int, int]:
    """A matrix's axes cut into the groups that share each of (..., rows, 1, groups, 1) numbers."""
    rows, groups = numbers[-4], numbers[-2]
    return rows, matrix[0] // rows, groups, matrix[1] // groups
