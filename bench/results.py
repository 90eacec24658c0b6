"""What was measured, as data: samples, their medians, ratios and whether goals are met."""

from __future__ import annotations

from statistics import median
from typing import Any

import attrs

from bench.rows import Row, Watched

#: A goal missed by this much is accepted where the profile accounts for it.
LEEWAY = 0.15
PEER = "llama.cpp"


@attrs.define
class Samples:
    """One engine's values of a row, a round each: rates, seconds or MB; wall and CPU seconds; CPUs others used."""

    values: list[float] = attrs.Factory(list)
    wall: list[float] = attrs.Factory(list)
    cpu: list[float] = attrs.Factory(list)
    others: list[float] = attrs.Factory(list)
    skipped: str = ""
    notes: dict[str, Any] = attrs.Factory(dict)

    def add(self, value: float, wall: float, cpu: float, others: float | None = None) -> None:
        """One round."""
        self.values.append(value)
        self.wall.append(wall)
        self.cpu.append(cpu)
        if others is not None:
            self.others.append(others)

    @property
    def median(self) -> float:
        return median(self.values)

    def as_dict(self) -> dict[str, Any]:
        """With the figures made of the samples."""
        if not self.values:
            return {"skipped": self.skipped}
        made = {"median": self.median, "min": min(self.values), "max": max(self.values)}
        return made | {"wall_s": median(self.wall), "cpu_s": median(self.cpu)} | attrs.asdict(self)


@attrs.define
class Result:
    """A row with every engine's samples. read_limits: bytes a second, measured in each of its rounds; token_bytes:
    weights and caches that Iron reads for a token; weights_read: bytes a second at which the weights are read where they
    lie, by a loop that does nothing else. text_operations: multiplications and additions of an average text; float_limits: of
    float32 a second."""

    row: Row
    engines: dict[str, Samples] = attrs.Factory(dict)
    read_limits: list[float] = attrs.Factory(list)
    token_bytes: float = 0.0
    weights_read: list[float] = attrs.Factory(list)
    float_limits: list[float] = attrs.Factory(list)
    text_operations: float = 0.0

    def ratio(self, peer: str) -> tuple[float, float, float] | None:
        """Iron's median over a peer's, and the least and most of their rounds; inverted where smaller is better."""
        ours, theirs = self.engines.get("iron"), self.engines.get(peer)
        if ours is None or theirs is None or not ours.values or not theirs.values:
            return None
        pairs = [(ours.median, theirs.median), *zip(ours.values, theirs.values, strict=False)]
        ratios = [b / a if isinstance(self.row, Watched) else a / b for a, b in pairs]
        return ratios[0], min(ratios[1:]), max(ratios[1:])

    @property
    def read_rate(self) -> float | None:
        """Bytes of weights and caches Iron reads a second in this row; None where that is not what it measures."""
        ours = self.engines.get("iron")
        if not self.token_bytes or ours is None or not ours.values:
            return None
        return ours.median * self.token_bytes

    @property
    def read_share(self) -> float | None:
        """`read_rate` of the read limit, by medians."""
        rate = self.read_rate
        return rate / median(self.read_limits) if rate is not None and self.read_limits else None

    @property
    def float_share(self) -> float | None:
        """What Iron multiplies and adds a second, of the float32 limit; None where that is not what the row measures."""
        ours = self.engines.get("iron")
        if not self.text_operations or ours is None or not ours.values or not self.float_limits:
            return None
        return ours.median * self.text_operations / median(self.float_limits)

    @property
    def reached(self) -> float | None:
        """The least of what was reached over what the goals ask: 1 or more is met. None: nothing to judge by."""
        goal, found = self.row.goal, []
        ours, ratio = self.engines.get("iron"), self.ratio(PEER)
        if goal.ratio is not None and ratio is not None:
            found.append(ratio[0] / goal.ratio)
        peers = [r[0] for name in self.engines if name != "iron" and (r := self.ratio(name))]
        if goal.best is not None and peers:
            found.append(min(peers) / goal.best)
        if goal.read is not None and self.read_share is not None:
            found.append(self.read_share / goal.read)
        if goal.most is not None and ours is not None and ours.values:
            found.append(goal.most / ours.median)
        return min(found, default=None)

    @property
    def verdict(self) -> str:
        """"met", "within 15 %", "missed", or nothing to judge by."""
        reached = self.reached
        if reached is None:
            return ""
        return "met" if reached >= 1 else "within 15 %" if reached >= 1 - LEEWAY else "missed"

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "key": self.row.key,
            "title": self.row.title,
            "unit": self.row.unit,
            "goal": attrs.asdict(self.row.goal),
            "engines": {name: samples.as_dict() for name, samples in self.engines.items()},
            "ratios": {
                name: dict(zip(("median", "min", "max"), r, strict=True))
                for name in self.engines
                if name != "iron" and (r := self.ratio(name))
            },
            "read_limits": self.read_limits,
            "weights_read": self.weights_read,
            "token_bytes": self.token_bytes,
            "read_rate": self.read_rate,
            "read_share": self.read_share,
            "text_operations": self.text_operations,
            "float_share": self.float_share,
            "reached": self.reached,
            "verdict": self.verdict,
        }
