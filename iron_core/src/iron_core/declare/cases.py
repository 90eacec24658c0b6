"""The operators that are installed and their test cases: what `iron sim`, the tests and every catalog walk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from iron_core.declare.testing import Case
from iron_core.plugins.record import normal
from iron_core.plugins.registry import registry


def operators(*distributions: str) -> list[Any]:
    """The operator classes of these distributions, by name; of all that are installed and load, if none is named.

    PluginError for an operator of a named distribution that cannot be had.
    """
    found = registry()
    wanted = set(map(normal, distributions))
    if not wanted:
        loaded = sorted(found.select("operators", load=True), key=lambda record: record.name)
        return [record.object for record in loaded if record.status == "ok"]
    records = sorted((r for r in found.select("operators") if normal(r.distribution) in wanted), key=lambda record: record.name)
    return [found.load("operators", f"{record.distribution}:{record.name}") for record in records]


def cases(
    classes: Iterable[Any], devices: Iterable[str] = ("host",), *, extensive: bool = False, bench: bool = True
) -> Iterator[tuple[Any, Case, str]]:
    """(operator class, case, device): operator by operator, case by case, device by device.

    extensive: those beyond the default suite too. bench: those that are timed too.
    """
    names = tuple(devices)
    for cls in classes:
        for case in cls.test.cases(cls):
            if (extensive or not case.extensive) and (bench or not case.bench):
                for dev in names:
                    yield cls, case, dev
