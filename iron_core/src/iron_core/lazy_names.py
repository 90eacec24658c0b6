"""Names of a package that load on first use (PEP 562): importing one name imports one name's module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str], kind: str = "operator") -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package whose `__init__` assigns them.

    homes: by name, the package's module that has it. kind: what AttributeError calls a name that is not there.
    """
    listed = sorted(homes)

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no {kind} {name!r}; it has {', '.join(listed)}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # found before this is asked again
        return value

    return attribute, lambda: list(listed)
