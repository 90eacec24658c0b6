"""`iron sim --time`: operators' test cases on the clock, without data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from iron_core.declare.cases import cases
from iron_core.errors import IronError
from iron_sim.timing.measure import step


@attrs.frozen
class Timing:
    """One case on one device. us: of its sequence; load_us: of its array in an entry. busiest: the core or stream that is busy longest, and
    which part of the time. refused: the rule, where no array takes the case."""

    operator: str
    case: str
    dev: str
    us: float = 0.0
    load_us: float = 0.0
    columns: int = 0
    cores: int = 0
    busiest: str = ""
    share: float = 0.0
    refused: str = ""


def timings(classes: list[Any], devices: list[str], extensive: bool = False) -> Iterator[Timing]:
    """Every case of the default suite, or of all that there are."""
    for cls, case, dev in cases(classes, devices, extensive=extensive):
        start = Timing(cls.__name__, case.id, dev)
        try:
            found = step(cls(**case.fields), dev, case.bounds)
        except IronError as error:
            yield attrs.evolve(start, refused=str(error))
            continue
        yield attrs.evolve(
            start,
            us=found.us,
            load_us=found.load_us,
            columns=found.columns,
            cores=len(found.array.cores),
            busiest=found.busiest[0],
            share=found.busiest[1] / found.us,
        )
