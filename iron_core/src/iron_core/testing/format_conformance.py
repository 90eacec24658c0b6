"""What every packed format keeps, as tests to inherit."""

from __future__ import annotations

import math
import pickle
from typing import ClassVar

import numpy as np
import pytest

from iron_core.declare.formats import Format, PackedArray, as_format
from iron_core.errors import FormatError, IronError


class FormatConformance:
    """Set `format`, a packed one.

        class TestINT8(FormatConformance):
            format = INT8
            name = "acme.int8"          # as it is registered

    name: what it is registered as, which is then looked up. quantizes: False for a format that is only read. error: of numbers rounded
    to it, the largest part of their norm that they may be off by.
    """

    format: ClassVar[Format]
    name: ClassVar[str] = ""
    quantizes: ClassVar[bool] = True
    error: ClassVar[float] = 0.5

    # -- what tests are given -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the tensors that are tried: two units or more of each."""
        rows, columns = self.format.block
        columns = self.format.padded or columns
        return rows * max(2, -(-8 // rows)), columns * max(2, -(-64 // columns))

    @property
    def unit(self) -> int:
        """Rows that a view takes whole."""
        return self.format.unit(self.shape)[0]

    def values(self, *shape: int) -> np.ndarray:
        """Normal numbers."""
        return np.random.default_rng(0).standard_normal(shape or self.shape).astype(np.float32)

    def tensor(self, *shape: int, seed: int = 0) -> PackedArray:
        """A tensor as cases draw it; of a format that is only read the test is skipped where nobody draws any."""
        try:
            return self.format.drawn(np.random.default_rng(seed), shape or self.shape)
        except FormatError as error:
            if self.quantizes:
                raise
            pytest.skip(str(error))

    def rounded(self, values: np.ndarray) -> PackedArray:
        """These numbers in the format; skips the test where nobody rounds to it."""
        if not self.quantizes:
            pytest.skip("it is only read")
        return self.format.quantize(values)

    # -- what it is -----------------------------------------------------------------------------------

    def test_it_is_a_packed_format(self) -> None:
        """A Format whose tensors are bytes, with a name of one word, by which it shows itself."""
        assert isinstance(self.format, Format) and self.format.packed and self.format.dtype == np.uint8
        assert self.format.name and not set(self.format.name) & set(" \n") and str(self.format) == self.format.name

    def test_it_is_a_value(self) -> None:
        """It compares, hashes and pickles: an operator's key and an image hold it."""
        again = pickle.loads(pickle.dumps(self.format))
        assert again == self.format and hash(again) == hash(self.format) and again.name == self.format.name

    def test_it_is_found_by_its_name(self) -> None:
        """Wherever a dtype is named, the name it is registered as is this format."""
        if not self.name:
            pytest.skip("name = 'acme.int8' says what it is registered as")
        assert self.format.name == self.name and as_format(self.name) is self.format

    def test_its_blocks_are_rows_and_columns(self) -> None:
        """Each at least 1, in bytes that are not negative (0 where all of it stands apart); where a row may end inside one, at a divisor
        of its columns."""
        rows, columns = self.format.block
        assert rows >= 1 and columns >= 1 and self.format.block_bytes >= 0
        assert self.format.padded == 0 or columns % self.format.padded == 0

    def test_its_floats_lie_inside_a_block(self) -> None:
        """Scales and minima that code reads at their places (`scale_offsets`) are bytes of a block."""
        for start, dtype in self.format.scale_offsets:
            assert 0 <= start and start + dtype.itemsize <= self.format.block_bytes

    def test_models_compute_in_a_format_there_is(self) -> None:
        """`runs_as` is the name of a dtype or of a format."""
        assert as_format(self.format.runs_as) if self.format.runs_as != self.format.name else True

    # -- bytes ----------------------------------------------------------------------------------------

    def test_a_tensor_is_as_many_bytes_as_it_says(self) -> None:
        """`nbytes(shape)` is what `stored(shape)` holds, what a tensor of it has, and what zeros take."""
        many = self.format.nbytes(self.shape)
        assert many == math.prod(self.format.stored(self.shape)) > 0
        assert self.tensor().nbytes == many == self.format.zeros(self.shape).nbytes

    def test_matrices_are_stored_one_behind_another(self) -> None:
        """Of three axes the bytes are those of as many matrices."""
        assert self.format.nbytes((3, *self.shape)) == 3 * self.format.nbytes(self.shape)

    def test_rows_are_stored_one_behind_another(self) -> None:
        """Where rows are cut anywhere, a matrix is as many bytes as its rows."""
        if not self.format.by_rows:
            pytest.skip("rows are stored together")
        rows, columns = self.shape
        if self.unit == 1:
            assert self.format.nbytes(self.shape) == rows * self.format.row_bytes(columns)

    def test_a_part_of_a_block_is_refused(self) -> None:
        """In either direction; the error names the format and the nearest lengths."""
        rows, columns = self.format.block
        if (self.format.padded or columns) > 1:
            with pytest.raises(FormatError, match="Nearest"):
                self.format.nbytes((self.shape[0], self.shape[1] + 1))
        if rows > 1:
            with pytest.raises(FormatError, match="Nearest"):
                self.format.nbytes((self.shape[0] + 1, self.shape[1]))

    def test_another_number_of_bytes_is_refused(self) -> None:
        """One too few, one too many."""
        many = self.format.nbytes(self.shape)
        for wrong in (many - 1, many + 1):
            with pytest.raises(IronError):
                self.format.tensor(np.zeros(wrong, np.uint8), self.shape)

    def test_bytes_are_seen_not_copied(self) -> None:
        """A mapped file's tensor is the file's memory."""
        raw = np.zeros(self.format.nbytes(self.shape), np.uint8)
        assert np.shares_memory(self.format.tensor(raw, self.shape).data, raw)

    def test_a_view_begins_where_a_unit_does(self) -> None:
        """`offset` counts bytes of whole units, and refuses an element inside of one."""
        rows, columns = self.format.unit(self.shape)
        first = rows * self.shape[1] if rows > 1 else columns
        assert self.format.offset(0, self.shape) == 0
        if first < math.prod(self.shape):
            one = self.format.offset(first, self.shape)
            assert 0 < one < self.format.nbytes(self.shape)
        if first > 1:
            with pytest.raises(FormatError, match="element 1"):
                self.format.offset(1, self.shape)

    def test_a_tensor_pickles(self) -> None:
        """It comes back equal, of the same format."""
        tensor = self.tensor()
        again = pickle.loads(pickle.dumps(tensor))
        assert again.format == self.format and again.shape == tensor.shape and np.array_equal(again.data, tensor.data)

    # -- numbers --------------------------------------------------------------------------------------

    def test_its_numbers_are_float32(self) -> None:
        """Of the tensor's shape, finite, the same each time; its bytes stay as they were."""
        tensor = self.tensor()
        before = tensor.data.copy()
        numbers = tensor.dequantize()
        assert numbers.dtype == np.float32 and numbers.shape == self.shape and np.isfinite(numbers).all()
        assert np.array_equal(numbers, tensor.dequantize()) and np.array_equal(tensor.data, before)

    def test_its_numbers_are_the_callers_own(self) -> None:
        """What is made of a tensor may be written to."""
        tensor = self.tensor()
        numbers = tensor.dequantize()
        numbers[...] = 7
        assert not (tensor.dequantize() == 7).all()

    def test_any_bytes_are_numbers(self) -> None:
        """A file may hold any: they are read without an error, as numbers, infinities or NaN."""
        raw = np.random.default_rng(1).integers(0, 256, self.format.nbytes(self.shape), np.uint8)
        with np.errstate(all="ignore"):
            assert self.format.tensor(raw, self.shape).dequantize().shape == self.shape

    def test_units_are_numbers_by_themselves(self) -> None:
        """Rows that are stored together make the same numbers cut out as in the whole tensor."""
        tensor = self.tensor()
        if self.unit < self.shape[0]:
            assert np.array_equal(tensor[self.unit : 2 * self.unit].dequantize(), tensor.dequantize()[self.unit : 2 * self.unit])

    def test_matrices_are_numbers_by_themselves(self) -> None:
        """Of three axes each matrix makes what it makes alone."""
        tensor = self.tensor(2, *self.shape)
        for i in range(2):
            assert np.array_equal(tensor[i].dequantize(), tensor.dequantize()[i])

    def test_a_reshape_keeps_the_numbers(self) -> None:
        """One that leaves whole what is stored together."""
        tensor = self.tensor()
        assert np.array_equal(tensor.reshape(1, *self.shape).dequantize()[0], tensor.dequantize())

    def test_its_fields_are_its_numbers(self) -> None:
        """Integers times scales, and minima, are what `dequantize` gives; a format without them says so."""
        tensor = self.tensor()
        if not (self.format.group or self.format.planes):
            with pytest.raises(FormatError):
                self.format.fields(tensor.data, self.shape)
            return
        integers, scales, minima = self.format.fields(tensor.data, self.shape)
        assert integers.shape == self.shape and integers.dtype == np.int32 and scales.dtype == np.float32

        def spread(each: np.ndarray) -> np.ndarray:
            return np.repeat(each, -(-self.shape[1] // each.shape[-1]), -1)[..., : self.shape[1]]

        made = integers * spread(scales).astype(np.float64) + (0 if minima is None else spread(minima))
        assert np.allclose(made, tensor.dequantize(), rtol=1e-5, atol=1e-6)

    # -- drawing and rounding -------------------------------------------------------------------------

    def test_a_drawn_tensor_is_of_the_format(self) -> None:
        """Whole, in the shape asked for, the same of the same generator and another of another."""
        one, same, other = self.tensor(), self.tensor(), self.tensor(seed=1)
        assert isinstance(one, PackedArray) and one.format == self.format and one.shape == self.shape
        assert np.array_equal(one.data, same.data) and not np.array_equal(one.data, other.data)

    def test_a_drawn_tensor_is_of_the_size_asked_for(self) -> None:
        """Its numbers are about as large as `spread`, so that a product of them neither vanishes nor overflows."""
        for spread in (1.0, 1 / 16):
            self.tensor()
            numbers = self.format.drawn(np.random.default_rng(3), self.shape, spread).dequantize().astype(np.float64)
            assert 0.3 * spread < np.sqrt((numbers**2).mean()) < 3 * spread

    def test_rounding_gives_a_tensor_of_the_shape(self) -> None:
        """Or says in words that nobody rounds to it. What is rounded stays as it was."""
        values, before = self.values(), self.values()
        if not self.quantizes:
            with pytest.raises(FormatError):
                self.format.quantize(values)
            return
        tensor = self.format.quantize(values)
        assert tensor.format == self.format and tensor.shape == self.shape and tensor.nbytes == self.format.nbytes(self.shape)
        assert np.array_equal(values, before)

    def test_rounded_numbers_are_near(self) -> None:
        """`dequantize` undoes `quantize` but for what the format cannot hold."""
        values = self.values()
        assert np.linalg.norm(self.rounded(values).dequantize() - values) <= self.error * np.linalg.norm(values)

    def test_numbers_of_the_format_stay_nearer(self) -> None:
        """Rounded again, they move no further than they did the first time."""
        values = self.values()
        once = self.rounded(values).dequantize()
        again = self.rounded(once).dequantize()
        assert np.linalg.norm(again - once) <= np.linalg.norm(once - values) + 1e-6

    def test_rounding_is_a_function(self) -> None:
        """The same numbers twice give the same bytes."""
        assert np.array_equal(self.rounded(self.values()).data, self.rounded(self.values()).data)

    def test_units_are_rounded_by_themselves(self) -> None:
        """What lies in one block does not change another's numbers."""
        values = self.values()
        whole = self.rounded(values)
        if self.unit < self.shape[0]:
            assert np.array_equal(self.rounded(values[: self.unit]).dequantize(), whole.dequantize()[: self.unit])

    def test_zeros_are_rounded_to_zeros(self) -> None:
        """A block without a largest number divides by nothing."""
        assert not self.rounded(np.zeros(self.shape, np.float32)).dequantize().any()

    def test_what_is_no_numbers_is_not_rounded(self) -> None:
        """Words, and complex numbers: an error that names the format."""
        if not self.quantizes:
            pytest.skip("it is only read")
        for given in ("junk", np.ones(self.shape, complex)):
            with pytest.raises(IronError, match=self.format.name):
                self.format.quantize(given)
