"""Finding a lowering: by entry point `<backend>.<package>.<Operator>` in `iron.lowerings.v1`.

The class is matched exactly: a subclass computes something else, so it never inherits its parent's
lowering. A lowering is imported when the first step of its operator is met.
"""

from __future__ import annotations

from typing import Any

from iron_core.errors import PluginError
from iron_core.lowering.protocol import Lowering
from iron_core.plugins import foreign
from iron_core.plugins.registry import Registry, registry

#: Entry-point group of lowerings.
GROUP = "iron.lowerings.v1"

_instances: dict[type, Lowering] = {}
_found: dict[tuple[Registry, str, type], Lowering | None] = {}


def lowering_name(backend: str, operator: type) -> str:
    """The entry-point name of this operator class on this backend, e.g. "host.iron_ops_aie.GEMV"."""
    return f"{backend}.{operator.__module__.partition('.')[0]}.{operator.__qualname__}"


def lowering_for(backend: str, op: Any) -> Lowering | None:
    """This backend's lowering of an operator instance, or None when none is installed.

    PluginError when one is installed but is no `Lowering`, or fails to load.
    """
    known = registry()
    key = (known, backend, type(op))
    if key not in _found:
        _found[key] = _look_up(known, backend, type(op))
    return _found[key]


def _look_up(known: Registry, backend: str, operator: type) -> Lowering | None:
    name = lowering_name(backend, operator)
    found = known.find(GROUP, name)
    if found is None:
        return None
    if not (isinstance(found, type) and issubclass(found, Lowering)):
        raise PluginError(f"{name}: a lowering is a class deriving from iron_core.Lowering; the entry point names {found!r}.")
    backend, _, of = name.partition(".")
    if found.backend not in ("", backend) or found.operator not in ("", of):
        raise PluginError(
            f"{name}: its entry point names {found.__module__}.{found.__qualname__}, whose backend is {found.backend!r} and operator "
            f"{found.operator!r}. Legal: an entry point of their name, {found.backend}.{found.operator}."
        )
    if found not in _instances:
        try:
            with foreign.guarded():
                made = found()
        except foreign.Raised as raised:
            raise PluginError(f"lowering `{name}` ({found.__module__}) cannot be made: {raised}.") from raised.error
        _instances.setdefault(found, made)
    return _instances[found]
