"""Reading pickles of plans and images: data, and nothing that could do more than be data."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

import attrs
import numpy as np

from iron_core.declare.chained import Chained
from iron_core.declare.operand import Operand
from iron_core.declare.operator import Operator
from iron_core.plugins.registry import registry

#: What a pickle that is damaged, or of other classes than there are, makes the reader raise.
_UNREADABLE = (pickle.UnpicklingError, AttributeError, ImportError, TypeError, ValueError, EOFError, IndexError)


def read(content: bytes, kind: type, known: Sequence[Any] = ()) -> Any:
    """The object of class `kind` that was pickled; None where the bytes hold anything else. known: objects that it names by number.

    A class is looked up in what is imported already, or is a pack's; no other module is imported.
    """
    try:
        found = _Reader(io.BytesIO(content), known).load()
    except _UNREADABLE:
        return None
    return found if isinstance(found, kind) else None


def _offered(package: str) -> bool:
    """Is this a pack's, which `IRON_PLUGINS` does not hide?"""
    record = registry().of_package(package)
    return record is not None and record.status != "denied"


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, known: Sequence[Any]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_load(self, number: Any) -> Any:
        return self._known[number]

    def find_class(self, module: str, name: str) -> Any:
        package = module.partition(".")[0]
        if package not in sys.modules and not _offered(package):  # an import would run what it holds
            raise pickle.UnpicklingError(f"{package} is neither imported nor a pack's")
        found = super().find_class(module, name)
        if found in (set, frozenset, slice, range, complex, Chained, Operand) or (
            isinstance(found, type) and (attrs.has(found) or issubclass(found, (Operator, Enum, np.generic, np.dtype)))
        ):
            return found
        if found is np.ndarray or (module.endswith("core.multiarray") and name in ("scalar", "_reconstruct")):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a plan or an image")
