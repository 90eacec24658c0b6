"""QuantizeRows on the host: kernel `quantize_each<T>` of elementwise.h."""

from __future__ import annotations

from iron_host.kernels import QUANTIZE_EACH
from iron_host.lowerings.rows import Rows


class QuantizeRows(Rows):
    """A row is one thread's."""

    operator = "iron_ops_aie.QuantizeRows"
    header, template, slots = "elementwise.h", "quantize_each", QUANTIZE_EACH
