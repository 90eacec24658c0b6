"""DepthwiseConv1d on the host: kernel `depthwise_conv1d<T, W>` of conv.h."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.kernels import DEPTHWISE_CONV1D
from iron_host.lowerings.rows import Rows


class DepthwiseConv1d(Rows):
    """Rows are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.DepthwiseConv1d"
    header, template, slots = "conv.h", "depthwise_conv1d", DEPTHWISE_CONV1D
    dtypes = ("T", "W")
    grain = Auto(8192)
