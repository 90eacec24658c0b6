"""The settings of an operator that a tuner may try: its tunables' domains on an array, or those of a backend's own lowering."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import attrs

from iron_core.array.build import build
from iron_core.declare.domain import domains
from iron_core.declare.field import MISSING, ParamField
from iron_core.declare.identity import array_key, canonical, contract_key, design_key
from iron_core.devices import Device
from iron_core.errors import IronError
from iron_core.lowering.registry import taken


@attrs.frozen(eq=False, slots=False)
class Variant:
    """An operator at one setting.

    op: with the setting's tunables given; resolved: with all of them, on an array (elsewhere the same as `op`). tunables: what the
    setting says, of the operator or, where `lowered`, of the backend's lowering. members: what calls give numbers for. compared: the
    same where what it writes is compared, if that is elsewhere.
    """

    op: Any
    resolved: Any
    dev: Device
    tunables: Mapping[str, Any]
    lowered: bool = False
    members: Mapping[str, int] = attrs.field(factory=dict)
    compared: Mapping[str, int] | None = None
    #: Of a lowering that was chosen among several, whose it is.
    distribution: str = ""

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What it is: equal keys are the same design, or the same kernel call."""
        if self.lowered or not self.dev.is_npu:
            given = tuple(sorted((k, canonical(v)) for k, v in self.tunables.items() if self.lowered))
            return (contract_key(self.op), given, *filter(None, (self.distribution,)))
        return design_key(self.resolved)

    @cached_property
    def array_key(self) -> tuple[Any, ...]:
        """Its array, of a device that has one."""
        return array_key(self.resolved)

    @cached_property
    def built(self) -> Any:
        """Its design and kernels. Unresolvable where there is none: a transfer that fits no descriptors, for one."""
        return build(self.resolved, self.dev, self.members)

    @cached_property
    def written(self) -> tuple[Any, ...]:
        """Its design as text, and what its kernels are said to take."""
        design, kernels = self.built
        return repr(design), sorted((symbol, one.contract.cycles, one.contract.ops) for symbol, one in kernels.items())

    @cached_property
    def channels(self) -> tuple[int, int]:
        """Channels of shims that it uses: those that read memory, and those that write it."""
        roles = {operand.name: operand.role for operand in self.resolved.operands.values()}
        into = sum(roles[lane.operand] == "in" for lane in self.built.design.array.lanes)
        return into, len(self.built.design.array.lanes) - into

    @property
    def label(self) -> str:
        """The setting in words."""
        return ", ".join(f"{name}={value}" for name, value in self.tunables.items()) or "nothing to choose"


def probed(op: Any) -> Any:
    """The operator that is timed in its place: fields that do not change its time (`Param(probe=)`) at the value it is timed at."""
    changes = {
        name: field.probe
        for name, field in op.fields.items()
        if isinstance(field, ParamField) and field.probe is not MISSING and getattr(op, name) != field.probe
    }
    return op.evolve(**changes) if changes else op


class Settings:
    """An operator's settings on a device and backend. Iterating gives the default, then every combination of its domains' values that
    resolves, is compatible and has a sequence, each design once.

    pinned: tunables that are not searched; those that a call or a profile gives never are. All of these stay as they resolve. members:
    per-call numbers it is timed at; compared: those it is compared at, if others. Unresolvable for an operator that no array of the
    device takes.
    """

    def __init__(
        self, op: Any, dev: Device, backend: Any, pinned: Collection[str] = (), members: Mapping[str, int] | None = None,
        compared: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.op, self.dev, self.members, self.compared = op, dev, dict(members or {}), compared
        one = None if dev.is_npu else taken(backend.name, op, dev.name)
        self.lowering = None if one is None else one.lowering
        self._distribution = "" if one is None or one.default else one.record.distribution
        self._backend = backend
        found: Mapping[str, tuple[Any, ...]]
        if dev.is_npu:
            resolved = op.resolved(dev)
            found = domains(resolved, dev)
            chosen = {name: getattr(resolved, name) for name in found}
        else:
            found = self.lowering.domains(op, dev) if self.lowering is not None else {}
            chosen = self.lowering.tunables(op, dev.name) if self.lowering is not None else {}
        #: What is searched: per tunable its values, the default's own among them.
        self.axes = {name: values for name, values in found.items() if name not in pinned and len(values) > 1}
        first = self.at({name: chosen[name] for name in self.axes})
        assert first is not None
        #: What stays as it is, as the default has it.
        self._held = {n: getattr(first.resolved, n) for n in {*op.pinned, *pinned} & op.fields.keys()} if dev.is_npu else {}
        self.default = first

    @property
    def size(self) -> int:
        """Combinations, those that do not resolve among them."""
        total = 1
        for values in self.axes.values():
            total *= len(values)
        return total

    def at(self, tunables: Mapping[str, Any]) -> Variant | None:
        """The operator with these tunables, the others as they resolve; None where that cannot be."""
        if not self.dev.is_npu:
            return self._lowered(tunables)
        try:
            op = self.op.with_tunables(**tunables)
            resolved = op.resolved(self.dev)
            said = {name: getattr(resolved, name) for name in getattr(self, "axes", tunables)}
            found = Variant(self.op.with_tunables(**said), resolved, self.dev, said, False, self.members, self.compared)
            _ = found.built
        except IronError:
            if not hasattr(self, "default"):  # the operator's own: say why
                raise
            return None
        return found if not hasattr(self, "default") or self._takes(found) else None

    def _takes(self, found: Variant) -> bool:
        """Does a setting leave what is held, and take the plain operator it too? For a chain opens what a profile gave and it cannot
        use, and its setting is given to the operator that the steps are folded into."""
        if any(getattr(found.resolved, name) != value for name, value in self._held.items()):
            return False
        if found.op.base is not found.op:
            try:
                found.op.base.resolved(self.dev)
            except IronError:
                return False
        return True

    def _lowered(self, tunables: Mapping[str, Any]) -> Variant | None:
        try:
            if self.lowering is not None and tunables:
                self.lowering.tunables(self.op, self.dev.name, tunables)
        except IronError:
            return None
        return Variant(self.op, self.op, self.dev, dict(tunables), True, self.members, self.compared, self._distribution)

    def __iter__(self) -> Iterator[Variant]:
        yield self.default
        seen = {self.default.key}
        for values in itertools.product(*self.axes.values()):
            found = self.at(dict(zip(self.axes, values, strict=True)))
            if found is not None and found.key not in seen:
                seen.add(found.key)
                yield found


def variants(op: Any, dev: Device, backend: Any, pinned: Collection[str] = ()) -> list[Variant]:
    """Every setting of an operator, the default first; see `Settings`."""
    return list(Settings(op, dev, backend, pinned))
