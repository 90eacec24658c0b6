"""The formats there are, and layouts in use elsewhere, by the tests that every format inherits."""

from __future__ import annotations

from iron_core.declare.formats import SUPERBLOCKS, BlockQuant, as_format, grouped
from iron_core.plugins.registry import registry
from iron_core.testing import FormatConformance
from tests.layouts import AWQ, GPTQ, INT8_CHANNEL, INT8_TENSOR

#: Formats of Iron's own that nobody rounds to.
READ = {*SUPERBLOCKS, as_format("q4nx_k"), as_format("q4nx_mxfp4")}

#: Unsigned integers times a scale of either sign: half of a group's numbers are lost.
ERRORS = {"int4_tiles": 0.7}

for _name in registry().names("formats"):
    _format = as_format(_name)
    _given = dict(format=_format, name=_name, quantizes=_format not in READ, error=ERRORS.get(_name, 0.5))
    globals()[f"Test{_name.title().replace('_', '')}"] = type(f"Test{_name}", (FormatConformance,), _given)


class TestGPTQ(FormatConformance):
    format = GPTQ


class TestAWQ(FormatConformance):
    format = AWQ


class TestOneScaleATensor(FormatConformance):
    format = INT8_TENSOR


class TestOneScaleARow(FormatConformance):
    format = INT8_CHANNEL


class TestPairs(FormatConformance):
    format = BlockQuant("pairs4", bits=4, group=16, scale="float32", zero=8, order="pairs")


class TestGroups(FormatConformance):
    format = grouped(4, 128, "float16", "float16")
