"""What a backend needs to know about one operator: the `Lowering` base.

A lowering belongs to one backend and one operator class. It says which instances it takes, which
tunables of its own it has and how they are chosen, and what identifies the code it leads to. A backend
adds the methods it calls itself (the host's `step()`, for one); nothing here knows of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from iron_core.declare.field import AutoField
from iron_core.declare.identity import contract_key
from iron_core.declare.profile import LOWERING
from iron_core.devices import Device, device
from iron_core.errors import CallError, DeclarationError
from iron_core.lowering.answer import No, Yes


class Tuned:
    """An operator with the values of a lowering's tunables: what their domains are asked of."""

    def __init__(self, op: Any, tunables: Mapping[str, Any]) -> None:
        self._op, self._tunables = op, tunables

    def __getattr__(self, name: str) -> Any:
        return self._tunables[name] if name in self._tunables else getattr(self._op, name)


class Lowering:
    """How one backend takes one operator. Register it in `iron.lowerings.v1` as `<backend>.<package>.<Operator>`.

    Tunables are `Auto` class attributes; a subclass inherits and may replace them. One with a `domain=` is searched by a
    tuner, which asks the domain of the operator with the tunables' values; whatever is chosen, no bit of a result changes.
    Instances hold no state: the registry makes one per class and every call names the operator it is about.
    """

    #: The backend's name, e.g. "host". As its entry point says where it is left out; the same goes for the operator.
    backend: ClassVar[str] = ""
    #: The operator's package and class, e.g. "iron_ops_aie.GEMV".
    operator: ClassVar[str] = ""

    def supports(self, op: Any, dev: str) -> Yes | No:
        """Can this operator instance run on this device? `No` names the rule and the nearest legal values."""
        return Yes()

    def key(self, op: Any) -> tuple[Any, ...]:
        """What identifies the code this leads to; equal keys share one build. The contract unless narrowed."""
        return contract_key(op)

    def resolve(self, op: Any, dev: str) -> Mapping[str, Any]:
        """Tunables chosen for this instance on this device; those left out keep their `Auto` default."""
        return {}

    @classmethod
    @cache
    def autos(cls) -> dict[str, AutoField]:
        """This lowering's tunables by name, base classes first."""
        found: dict[str, AutoField] = {}
        for base in reversed(cls.__mro__):
            found.update((name, field) for name, field in vars(base).items() if isinstance(field, AutoField))
        if LOWERING in found:
            raise DeclarationError(f"{cls.__name__}: a tunable `{LOWERING}` is what a profile chooses a lowering by; rename it.")
        return found

    def tunables(self, op: Any, dev: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Every tunable's value: `given` (a Profile's entry) over `resolve()` over the `Auto` default.

        CallError for a tunable that is given and this lowering does not have, or a value that its domain does not have;
        DeclarationError for one of its `resolve()`.
        """
        values = self._values(op, dev, given or {})
        if given:
            plain = self._values(op, dev, {})
            for name in given:
                legal = self._domains(op, dev, {**values, name: plain[name]}).get(name)
                if legal is not None and not any(type(v) is type(given[name]) and v == given[name] for v in legal):
                    known = ", ".join(map(str, legal))
                    raise CallError(f"{self.backend}.{self.operator}: the profile sets {name}={given[name]!r}; legal: {known}.")
        return values

    def domains(self, op: Any, dev: Device | str, given: Mapping[str, Any] | None = None) -> dict[str, tuple[Any, ...]]:
        """Per tunable that declares a domain, the values to try: its own, `given` or resolved, among them."""
        dev = device(dev)
        return self._domains(op, dev.name, self.tunables(op, dev.name, given))

    def _domains(self, op: Any, dev: str, values: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        tuned = Tuned(op, values)
        searched = {name: field.domain for name, field in self.autos().items() if field.domain is not None and not field.derived}
        return {
            name: domain.values(tuned, name, device(dev))
            for name, domain in searched.items()
            if domain.when is None or getattr(tuned, domain.when)
        }

    def _values(self, op: Any, dev: str, given: Mapping[str, Any]) -> dict[str, Any]:
        autos = self.autos()
        values = {name: field.default for name, field in autos.items()}
        resolved, profile = ("resolve()", self.resolve(op, dev), DeclarationError), ("the profile", given, CallError)
        for origin, chosen, mistake in (resolved, profile):
            unknown = sorted(set(chosen) - set(autos))
            if unknown:
                legal = ", ".join(autos) or "none"
                raise mistake(
                    f"{self.backend}.{self.operator}: {origin} sets {', '.join(unknown)}, which this lowering does not "
                    f"have. Its tunables: {legal}."
                )
            values.update(chosen)
        return values
