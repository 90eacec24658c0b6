"""RowwiseAdd on the host."""

from __future__ import annotations

from iron_host.lowerings.rowwise import Rowwise


class RowwiseAdd(Rowwise):
    """See `Rowwise`."""

    operator = "iron_ops_aie.RowwiseAdd"
    function = "Add"
