"""The cases of operators that a device is tested at: those that some array of its family takes."""

from __future__ import annotations

from typing import Any

import pytest

from iron_core.declare.cases import cases
from iron_core.devices import device
from iron_core.errors import IronError
from tests.catalog import ARRAYS, families


def takes(cls: Any, case: Any, dev: str) -> bool:
    """Is there an array for it, or is there said to be one (`lower=True`)? Gathers are in test_graphs: rows are of a graph's table."""
    op = cls(**case.fields)
    try:
        op.resolved(device(dev))
    except IronError:
        return bool(case.lower)
    return not getattr(op, "gather", False)


def params() -> list[Any]:
    """(operator, case, device), each with what the case is marked."""
    found = []
    for cls in ARRAYS:
        for _, case, dev in cases([cls], families(cls), extensive=True):
            if takes(cls, case, dev):
                marks = [getattr(pytest.mark, name) for name in ("extensive", "bench") if getattr(case, name)]
                found.append(pytest.param(cls, case, dev, marks=marks))
    return found
