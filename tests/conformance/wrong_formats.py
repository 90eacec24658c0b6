"""Formats with a mistake each, under the suite that formats inherit: `test_format_mistakes.py` runs this and reads what failed."""

from __future__ import annotations

import attrs
import numpy as np

from iron_core import Format, PackedArray
from iron_core.declare.formats.numbers import real_numbers
from iron_core.testing import FormatConformance


@attrs.frozen
class Right(Format):
    """int8 in blocks of 32 with a float32 scale in front."""

    name: str = "right"
    block = (1, 32)
    block_bytes = 36

    def dequantize(self, data, shape):
        blocks = np.ascontiguousarray(data).reshape(-1, 36)
        scales = blocks[:, :4].copy().view(np.float32)
        return (blocks[:, 4:].view(np.int8).astype(np.float32) * scales).reshape(shape)

    def scales(self, blocks):
        return np.abs(blocks).max(-1, keepdims=True) / 127

    def quantize(self, values):
        values = real_numbers(values, f"{self.name}: quantize()").astype(np.float32)
        blocks = values.reshape(-1, 32)
        scales = np.maximum(self.scales(blocks), np.float32(1e-30)).astype(np.float32)
        integers = np.rint(blocks / scales).astype(np.int8)
        packed = np.concatenate([scales.view(np.uint8), integers.view(np.uint8)], 1)
        return PackedArray(packed.reshape(-1), values.shape, self)


class TestRight(FormatConformance):
    format = Right()


@attrs.frozen
class Disagrees(Right):
    def dequantize(self, data, shape):
        return super().dequantize(data, shape) * np.float32(4)


class TestDisagrees(FormatConformance):
    format = Disagrees()


@attrs.frozen
class Short(Right):
    def nbytes(self, shape):
        return super().nbytes(shape) - 4


class TestShort(FormatConformance):
    format = Short()


@attrs.frozen
class Crowded(Right):
    def stored(self, shape):
        found = super().stored(shape)
        return found if len(found) < 3 else (found[0] + 1, *found[1:])


class TestCrowded(FormatConformance):
    format = Crowded()


@attrs.frozen
class Wide(Right):
    def dequantize(self, data, shape):
        return super().dequantize(data, shape).astype(np.float64)


class TestWide(FormatConformance):
    format = Wide()


@attrs.frozen
class Overwrites(Right):
    def dequantize(self, data, shape):
        made = super().dequantize(data, shape)
        data[...] = 0
        return made


class TestOverwrites(FormatConformance):
    format = Overwrites()


@attrs.frozen
class Global(Right):
    def scales(self, blocks):
        return np.full((len(blocks), 1), np.abs(blocks).max() / 127)


class TestGlobal(FormatConformance):
    format = Global()


@attrs.frozen
class Biased(Right):
    def dequantize(self, data, shape):
        return super().dequantize(data, shape) + np.float32(0.25)


class TestBiased(FormatConformance):
    format = Biased()


@attrs.frozen
class Dithered(Right):
    def quantize(self, values):
        values = real_numbers(values, f"{self.name}: quantize()")
        return super().quantize(values * np.random.default_rng().uniform(0.999, 1, values.shape))


class TestDithered(FormatConformance):
    format = Dithered()


@attrs.frozen
class Scales(Right):
    def quantize(self, values):
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            values /= 2
        return super().quantize(values)


class TestScales(FormatConformance):
    format = Scales()


@attrs.frozen
class Reads(Right):
    def quantize(self, values):
        return Format.quantize(self, values)

    def drawn(self, rng, shape, spread=1.0):
        return Right.quantize(self, rng.standard_normal(shape).astype(np.float32) * np.float32(spread))


class TestReads(FormatConformance):
    format = Reads()
    quantizes = False


@attrs.frozen
class Large(Right):
    def drawn(self, rng, shape, spread=1.0):
        return super().drawn(rng, shape, 100.0)


class TestLarge(FormatConformance):
    format = Large()


@attrs.frozen(eq=False)
class Identity(Right):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class TestIdentity(FormatConformance):
    format = Identity()


@attrs.frozen
class Unnamed(Right):
    name: str = "no name"


class TestUnnamed(FormatConformance):
    format = Unnamed()


class TestElsewhere(FormatConformance):
    format = Right("q8_0")
    name = "q8_0"


@attrs.frozen
class Outside(Right):
    scale_offsets = ((34, np.dtype(np.float32)),)


class TestOutside(FormatConformance):
    format = Outside()


@attrs.frozen
class Trusting(Right):
    def quantize(self, values):
        return super().quantize(np.resize(np.asarray(values).astype(complex).real if not isinstance(values, str) else 0.0, (8, 64)))


class TestTrusting(FormatConformance):
    format = Trusting()
