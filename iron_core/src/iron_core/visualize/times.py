"""Times beside the steps of a picture: a table that somebody measured, or what a backend prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from iron_core.backends.pricing import Prices
from iron_core.errors import CallError
from iron_core.visualize.run_list import Row, RunList

#: What pictures take as `table=`: step name -> microseconds or any text, or `Prices`.
Table = Mapping[str, Any] | Prices | None


@attrs.frozen(eq=False)
class Times:
    """us: by row number, of those that have a time. notes: likewise, what is a text. entries: by entry, what it adds; dispatch: what a
    call adds. whole: of a call, where a backend says so. bounds: by row number, which resource binds it."""

    us: Mapping[int, float]
    notes: Mapping[int, str]
    entries: Mapping[int, float]
    dispatch: float = 0.0
    whole: float | None = None
    bounds: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def known(self) -> bool:
        return bool(self.us)

    @property
    def total(self) -> float:
        """Of a call: what a backend says, else the sum of what is known."""
        return self.steps + sum(self.entries.values()) + self.dispatch if self.whole is None else self.whole

    @property
    def steps(self) -> float:
        return sum(self.us.values())

    def of(self, rows: Sequence[Row]) -> float:
        """Of these rows together."""
        return sum(self.us.get(row.number, 0.0) for row in rows)

    def at(self, row: Row) -> str:
        """As a cell has it; empty where nothing is known."""
        us = self.us.get(row.number)
        return self.notes.get(row.number, "") if us is None else duration(us)


def times(table: Table, run: RunList) -> Times:
    """What a table says of the rows. CallError for what is no table."""
    if table is None:
        return Times({}, {}, {})
    if isinstance(table, Mapping):
        found = {row.number: table[row.name] for row in run.rows if table.get(row.name) is not None}
        us = {number: float(given) for number, given in found.items() if isinstance(given, (int, float))}
        return Times(us, {number: str(given) for number, given in found.items() if number not in us}, {})
    if not callable(getattr(table, "step_us", None)):
        raise CallError(f"table={table!r}; legal: step name -> microseconds or text, or what has step_us(name).")
    priced = ((row.number, table.step_us(row.name)) for row in run.rows)
    says = getattr(table, "bounds", {})
    bounds = {row.number: str(says[row.name]) for row in run.rows if row.name in says}
    entries = getattr(table, "entries", ())
    entered = {n: float(us) for n, us in enumerate(entries) if isinstance(us, (int, float))} if len(entries) == len(run.entries) else {}
    dispatch, whole = getattr(table, "dispatch_us", 0.0), getattr(table, "total_us", None)
    return Times({number: us for number, us in priced if us is not None}, {}, entered, dispatch, whole, bounds)


def own(table: Any, run: RunList) -> Table:
    """A version's own table, where there is one for each by signature."""
    return table.get(run.version.signature, table) if isinstance(table, Mapping) else table


def duration(us: float) -> str:
    """`43.1 us`, `1.20 ms`."""
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    if us >= 1e3:
        return f"{us / 1e3:.2f} ms"
    return f"{us:.1f} us" if us >= 0.05 or not us else f"{us:.2g} us"


def percent(share: float) -> str:
    """`12.3 %`."""
    return f"{100 * share:.1f} %"
