"""Finding a lowering: by entry point `<backend>.<package>.<Operator>` in `iron.lowerings.v1`.

The class is matched exactly: a subclass computes something else, so it never inherits its parent's
lowering. A lowering is imported when the first step of its operator is met.
"""

from __future__ import annotations

from typing import Any

from iron_core.errors import PluginError
from iron_core.lowering.protocol import Lowering

#: Entry-point group of lowerings.
GROUP = "iron.lowerings.v1"

_instances: dict[type, Lowering] = {}


def lowering_name(backend: str, operator: type) -> str:
    """The entry-point name of this operator class on this backend, e.g. "host.iron_ops_aie.GEMV"."""
    return f"{backend}.{operator.__module__.partition('.')[0]}.{operator.__qualname__}"


def lowering_for(backend: str, op: Any) -> Lowering | None:
    """This backend's lowering of an operator instance, or None when none is installed.

    PluginError when one is installed but is no `Lowering`, or fails to load.
    """
    from iron_core.plugins.registry import registry

    operator = type(op)
    name = lowering_name(backend, operator)
    found = registry().find(GROUP, name)
    if found is None:
        return None
    if not (isinstance(found, type) and issubclass(found, Lowering)):
        raise PluginError(f"{name}: a lowering is a class deriving from iron_core.Lowering; the entry point names {found!r}.")
    if found not in _instances:
        _instances[found] = found()
    return _instances[found]
