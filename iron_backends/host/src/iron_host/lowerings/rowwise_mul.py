"""RowwiseMul on the host."""

from __future__ import annotations

from iron_host.lowerings.rowwise import Rowwise


class RowwiseMul(Rowwise):
    """See `Rowwise`."""

    operator = "iron_ops_aie.RowwiseMul"
    function = "Mul"
