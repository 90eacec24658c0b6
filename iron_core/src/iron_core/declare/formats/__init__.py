"""How a tensor's values are stored. A tensor is (logical shape, Format)."""

from __future__ import annotations

from iron_core.declare.dtypes import DTYPES, as_dtype, bfloat16
from iron_core.declare.formats.bfp16 import BFP16EBS8
from iron_core.declare.formats.block_quant import BlockQuant
from iron_core.declare.formats.dense import Dense
from iron_core.declare.formats.format import Format, PackedArray
from iron_core.declare.formats.gguf import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from iron_core.declare.formats.grouped import grouped
from iron_core.declare.formats.lazy import LazyPackedArray
from iron_core.declare.formats.naming import as_format, format_of
from iron_core.declare.formats.plane import Plane
from iron_core.declare.formats.plane_quant import PlaneQuant
from iron_core.declare.formats.q4nx import Q4NX, Q4NX_K, Q4NX_MXFP4, Q4NX_Q8, Q4NX_SIGNED, Q4NX_ZERO
from iron_core.declare.formats.quantized import Quantized
from iron_core.declare.formats.superblocks import IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, SUPERBLOCKS, SuperBlock

__all__ = [
    "BFP16EBS8", "DTYPES", "IQ4_NL", "IQ4_XS", "MXFP4", "Q2_K", "Q3_K", "Q4NX", "Q4NX_K", "Q4NX_MXFP4", "Q4NX_Q8", "Q4NX_SIGNED",
    "Q4NX_ZERO", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0", "SUPERBLOCKS", "BlockQuant", "Dense", "Format",
    "LazyPackedArray", "PackedArray", "Plane", "PlaneQuant", "Quantized", "SuperBlock", "as_dtype", "as_format", "bfloat16", "format_of",
    "grouped",
]  # fmt: skip
