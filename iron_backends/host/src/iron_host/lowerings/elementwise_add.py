"""ElementwiseAdd on the host: kernel `binary<Add, T>`."""

from __future__ import annotations

from iron_host.lowerings.binary import Binary


class ElementwiseAdd(Binary):
    """See `Binary`."""

    operator = "iron_ops_aie.ElementwiseAdd"
    function = "Add"
