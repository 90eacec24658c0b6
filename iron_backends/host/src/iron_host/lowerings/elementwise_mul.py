"""ElementwiseMul on the host: kernel `binary<Mul, T>`."""

from __future__ import annotations

from iron_host.lowerings.binary import Binary


class ElementwiseMul(Binary):
    """See `Binary`."""

    operator = "iron_ops_aie.ElementwiseMul"
    function = "Mul"
