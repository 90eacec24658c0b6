"""`CostTable`: one graph's measured costs on one device and packaging, as JSON.

Its keys say what a design is, not how it is made: after a change of an operator's `array()` or `sequence()` measure again. A design that
has become another one since, for it has other fields or tunables, is not in the table any more.
"""

from __future__ import annotations

import hashlib
import json
import os
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import attrs

from iron_core.declare.identity import design_key
from iron_core.devices import Device, device
from iron_core.errors import LONGEST, printable
from iron_core.files import write_whole
from iron_tuner.errors import CostError
from iron_tuner.records import is_time
from iron_tuner.settings import probed

#: How a plan's steps become dispatches, as `iron_core.image.plan.Packaging.dispatch` has it.
DISPATCHES = ("fused", "separate")
_SEPARATOR = "|"
#: Fields that may be below 0: differences of what was measured, for noise may be more than they; and tunables.
_DIFFERENCES = {"pair_us", "switch_us", "dispatch_us", "base_us", "reset_us", "tunables"}


def cost_key(op: Any, dev: Device | str) -> str:
    """What an operator's cost is kept under: its class and its identity, every field as it resolves on `dev`, those that change no time
    at the value they are timed at. Unresolvable where no array takes it."""
    op = probed(op.resolved(device(dev)))
    return f"{type(op.base).__name__}_{hashlib.sha256(repr(design_key(op)).encode()).hexdigest()[:24]}"


@attrs.frozen
class Point:
    """A design at one operating point, as "kv_valid=1024": `weight` of it in the mean, and fields as `StepCost` has them."""

    weight: float
    t_step_us: float
    exact: bool
    accurate: bool
    calls: int
    noise_us: float | None = None


@attrs.frozen
class StepCost:
    """A design by itself. Times are microseconds.

    t_step_us: of one more step of it. alone_us: of a run that is one step of it. noise_us: the standard error of how much less than the
    default's its step takes, of rounds in which both had their turns; of the default itself, of its step. exact: its output is the
    default's bit for bit; accurate: or within the gates of both. pmode: the power mode it was measured in. pair_us: what entering it and
    the design `beside` takes together, where that was measured. points: operating points by label, whose weighted mean counts instead of
    t_step_us. design: what a message calls it. setting_of: the key of the default whose setting this is, and `tunables` what it sets: so
    that who reads the table need not try every setting there could be.
    """

    t_step_us: float
    alone_us: float
    exact: bool
    accurate: bool
    pmode: str
    rounds: int
    calls: int
    measured: str
    noise_us: float | None = None
    beside: str = ""
    pair_us: float | None = None
    points: Mapping[str, Point] = attrs.field(factory=dict)
    design: str = ""
    setting_of: str = ""
    tunables: Mapping[str, int | float | str | bool] = attrs.field(factory=dict)


@attrs.frozen
class Calibration:
    """Two designs, in turn and grouped. switch_us: half of what entering both takes. dispatch_us: what a call takes besides. base_us: of
    an entry, what does not depend on the design; reset_us: of an odd count of entries. None where every step is its own dispatch."""

    switch_us: float
    dispatch_us: float
    pmode: str
    rounds: int
    calls: int
    measured: str
    base_us: float | None = None
    reset_us: float | None = None


@attrs.frozen
class PackCost:
    """Designs on one configuration. pair_us: what entering it and the design `beside` takes together. t_step_us: of each member's step
    there, by its key."""

    beside: str
    pair_us: float
    t_step_us: Mapping[str, float]
    pmode: str
    rounds: int
    calls: int
    measured: str


_Record = TypeVar("_Record", StepCost, Calibration, PackCost)


@attrs.define
class CostTable:
    """device: its name. dispatch: "fused" or "separate". platform: the machine that was measured, where that is known. steps by
    `cost_key`; calibrations and packs by the keys of their designs, see `add_calibration` and `add_pack`. dropped: entries that a file
    had and that lack something, in words: they are to be measured again.

    CostError for entries of two power modes.
    """

    device: str
    dispatch: str = "fused"
    platform: str = ""
    steps: dict[str, StepCost] = attrs.field(factory=dict)
    calibrations: dict[str, Calibration] = attrs.field(factory=dict)
    packs: dict[str, PackCost] = attrs.field(factory=dict)
    dropped: tuple[str, ...] = attrs.field(default=(), eq=False)

    def __attrs_post_init__(self) -> None:
        if self.dispatch not in DISPATCHES:
            raise CostError(f"dispatch={self.dispatch!r}; legal: {', '.join(DISPATCHES)}.")
        _ = self.pmode

    @property
    def pmode(self) -> str:
        """The power mode of all entries; "" where there are none."""
        modes = sorted({entry.pmode for part in (self.steps, self.calibrations, self.packs) for entry in part.values()})
        if len(modes) > 1:
            raise CostError(f"costs of power modes {' and '.join(modes)} in one table of {self.device}; remeasure those of one of them.")
        return modes[0] if modes else ""

    def add_step(self, key: str, cost: StepCost) -> None:
        """CostError where the others are of another power mode."""
        self._add(self.steps, key, cost)

    def add_calibration(self, a: str, b: str, cost: Calibration) -> None:
        self._add(self.calibrations, _SEPARATOR.join((a, b)), cost)

    def add_pack(self, members: Iterable[str], cost: PackCost) -> None:
        self._add(self.packs, pack_key(members), cost)

    def _add(self, part: dict[str, Any], key: str, cost: Any) -> None:
        if self.pmode and cost.pmode != self.pmode:
            raise CostError(f"{key} is of power mode {cost.pmode}, and this table of {self.device} of {self.pmode}; remeasure one of them.")
        part[key] = cost

    def pairs(self) -> dict[tuple[str, str], Calibration]:
        """Calibrations by their two designs."""
        return {_two(key): cost for key, cost in self.calibrations.items()}

    # -- files ----------------------------------------------------------------------------------------

    @staticmethod
    def file_name(device: str, dispatch: str, usual: str = "") -> str:
        """`costs_npu2.json`; of another packaging than the device's `usual` one (left out: "fused"), `costs_npu2_separate.json`."""
        return f"costs_{device}.json" if dispatch == (usual or "fused") else f"costs_{device}_{dispatch}.json"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it whole or not at all, an entry a line. OSError says why not."""
        parts = {name: getattr(self, name) for name in ("steps", "calibrations", "packs")}
        head = {"device": self.device, "dispatch": self.dispatch} | ({"platform": self.platform} if self.platform else {})
        lines = [json.dumps(head)[1:-1]]
        for name, part in parts.items():
            entries = ",\n".join(f"  {json.dumps(key)}: {json.dumps(_plain(entry))}" for key, entry in part.items())
            lines.append(f'"{name}": {{\n{entries}\n}}' if entries else f'"{name}": {{}}')
        write_whole(Path(path), "{" + ",\n".join(lines) + "}\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "", dispatch: str = "") -> CostTable:
        """Read a file. CostError for one that is no table, is of two power modes, or of another device or packaging than these, where
        they are given; OSError where it cannot be read."""
        try:
            content = _object(json.loads(Path(path).read_text(encoding="utf-8")))
            dropped: list[str] = []
            own, how, platform = (_value(content.get(name, ""), str) for name in ("device", "dispatch", "platform"))
            if not own or own != printable(own, 40):
                raise ValueError("it names no device")
            table = cls(
                own,
                how,
                platform,
                _entries(content.get("steps", {}), StepCost, dropped),
                _entries(content.get("calibrations", {}), Calibration, dropped),
                _entries(content.get("packs", {}), PackCost, dropped),
                tuple(dropped),
            )
        except CostError as error:
            raise CostError(printable(f"{printable(path, 120)}: {error}", LONGEST)) from None
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            raise CostError(f"{printable(path, 120)} is no cost table ({printable(error, 100)}); `iron tune` writes one.") from None
        for what, is_of, wanted in (("device", own, device), ("packaging", how, dispatch)):
            if wanted and is_of != wanted:
                raise CostError(f"{printable(path, 100)} is of {what} {printable(is_of, 40)}, and {wanted} is asked for; measure one.")
        return table


def pack_key(members: Iterable[str]) -> str:
    """What a pack of these designs is kept under, in whatever order they are given."""
    return _SEPARATOR.join(sorted(members))


def _two(key: str) -> tuple[str, str]:
    a, b = key.split(_SEPARATOR)
    return a, b


def _plain(entry: Any) -> dict[str, Any]:
    """A record as JSON has it, without what is at its default."""
    found: dict[str, Any] = {}
    for field in attrs.fields(type(entry)):
        value = getattr(entry, field.name)
        default = field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
        if value == default:
            continue
        if isinstance(value, Mapping):
            value = {name: _plain(one) if attrs.has(type(one)) else one for name, one in value.items()}
        found[field.name] = value
    return found


def _entries(part: Any, kind: type[_Record], dropped: list[str]) -> dict[str, _Record]:
    """The records of a part of a file; those that lack something are named in `dropped`."""
    found: dict[str, _Record] = {}
    for key, given in _object(part).items():
        try:
            if kind is Calibration and key.count(_SEPARATOR) != 1:
                raise ValueError("it names no two designs")
            found[key] = _record(given, kind)
        except ValueError as error:
            dropped.append(f"{printable(key, 120)}: {printable(error, 100)}; it is to be measured again.")
    return found


@cache
def _kinds(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _record(given: Any, kind: Any) -> Any:
    """ValueError for one that lacks a field or has something else there; fields that are not known are passed over."""
    made = {}
    for field in attrs.fields(kind):
        if field.name in _object(given):
            try:
                made[field.name] = _value(given[field.name], _kinds(kind)[field.name], field.name not in _DIFFERENCES)
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from None
        elif field.default is attrs.NOTHING:
            raise ValueError(f"it has no {field.name}")
    if made.get("weight") == 0:
        raise ValueError("weight: 0, of a mean")
    return kind(**made)


def _value(given: Any, kind: Any, positive: bool = False) -> Any:
    """A value of JSON as a record has it: of bool, int, float (a time), str, a mapping of these or of records, or None too. ValueError
    for another one, or one below 0 that is `positive`."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        legal = typing.get_args(kind)
        if given is None and type(None) in legal:
            return None
        return _value(given, type(given) if type(given) in legal else legal[0], positive)
    if typing.get_origin(kind) is not None:
        of = typing.get_args(kind)[1]
        return {name: _record(one, of) if attrs.has(of) else _value(one, of, positive) for name, one in _object(given).items()}
    if type(given) is not kind and (kind is not float or type(given) is not int):
        raise ValueError(f"{given!r} where a {kind.__name__} is")
    if kind is float and (not is_time(given) or (positive and given < 0)):
        raise ValueError(f"{given!r} is no time")
    return kind(given)


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{given!r} where {{...}} is")
    return given
