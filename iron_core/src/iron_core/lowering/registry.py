"""Finding a lowering: by entry point `<backend>.<package>.<Operator>` in `iron.lowerings.v1`.

The class is matched exactly: a subclass computes something else, so it never inherits its parent's
lowering. A lowering is imported when the first step of its operator is met.

Where several distributions offer one, they are asked in this order, and the first that takes the operator has it: the one that was
chosen (see `iron_core.lowering.picks`), that of the pack of a format which the operator is in, the one whose name it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from iron_core.declare.formats import Format
from iron_core.declare.identity import label
from iron_core.errors import PluginError
from iron_core.lowering.answer import No, Yes
from iron_core.lowering.picks import GROUP, offering, pick_for
from iron_core.lowering.protocol import Lowering
from iron_core.plugins import foreign
from iron_core.plugins.record import Record
from iron_core.plugins.registry import Registry, labelled, registry

_instances: dict[type, Lowering] = {}
_found: dict[tuple[Registry, str, type], tuple[Record, Lowering] | None] = {}


@attrs.frozen
class Asked:
    """What one lowering says of an operator. lowering: None where it cannot be had, which the answer tells.

    by: who chose it; "" where its name is its owner's, so that nobody had to.
    """

    lowering: Lowering | None
    answer: Yes | No
    record: Record
    by: str = ""

    @property
    def default(self) -> bool:
        return not self.by


def lowering_name(backend: str, operator: type) -> str:
    """The entry-point name of this operator class on this backend, e.g. "host.iron_ops_aie.GEMV"."""
    return f"{backend}.{operator.__module__.partition('.')[0]}.{operator.__qualname__}"


def lowering_for(backend: str, op: Any) -> Lowering | None:
    """This backend's lowering of an operator instance, the first to be asked, or None when none is installed.

    PluginError when one is installed but is no `Lowering`, or fails to load.
    """
    for name, _ in candidates(backend, op):
        found = _had(name, type(op))
        return None if found is None else found[1]
    return None


def taken(backend: str, op: Any, dev: str) -> Asked | None:
    """The lowering that takes an operator instance on a device; where none does, what the last one says, with what those before it
    said; None when none is installed. PluginError as `asked`."""
    refused: list[Asked] = []
    for one in asked(backend, op, dev):
        if isinstance(one.answer, Yes):
            return one
        refused.append(one)
    if len(refused) < 2:
        return refused[0] if refused else None
    last = refused[-1]
    rules = "; ".join(f"{one.record.distribution}: {one.answer.rule}" for one in refused if isinstance(one.answer, No))
    return attrs.evolve(last, answer=No(rules, last.answer.nearest if isinstance(last.answer, No) else ""))


def asked(backend: str, op: Any, dev: str) -> Iterator[Asked]:
    """Every lowering that may take an operator instance, in order, with its answer.

    PluginError where one that was chosen fails, or one of Iron's own; of others it is the answer.
    """
    for name, by in candidates(backend, op):
        try:
            found = _had(name, type(op))
        except PluginError as error:
            owners = registry().owners(GROUP, name)
            if by or any(record.own for record in owners):
                raise
            yield Asked(None, No(str(error).rstrip(".")), (owners or registry().called(GROUP, name))[0])
            continue
        if found is None:
            return
        record, lowering = found
        try:
            with labelled(lowering, f"to say whether its lowering takes {label(op)}"):
                answer = lowering.supports(op, dev)
                if not isinstance(answer, Yes | No):
                    raise TypeError(f"supports() gave {foreign.kind_of(answer)}; legal: Yes() or No(rule)")
        except PluginError as error:
            if by:
                raise
            answer = No(str(error).rstrip("."))
        yield Asked(lowering, answer, record, by)


def candidates(backend: str, op: Any) -> Iterator[tuple[str, str]]:
    """The lowerings that are asked of an operator instance, in order: names, those of packs with their distribution's in front, and
    who chose them."""
    name = lowering_name(backend, type(op))
    default = registry().owners(GROUP, name)
    pick, given = pick_for(name, op), set()
    if pick is not None:
        given.add(pick.distribution)
        yield pick.qualified, pick.by
    for format, record in foreign_formats(op):
        if record.distribution not in given | {one.distribution for one in default}:
            given.add(record.distribution)
            if registry().owners(GROUP, f"{record.distribution}:{name}"):
                yield f"{record.distribution}:{name}", f"its format {format.name}"
    if len(default) != 1 or default[0].distribution not in given:
        yield name, ""


def foreign_formats(op: Any) -> Iterator[tuple[Format, Record]]:
    """The formats of an operator's operands that are a third party's, each with the record that names it."""
    seen: set[str] = set()
    for operand in op.present:
        format = op.format(operand)
        if format.packed and format.name not in seen:
            seen.add(format.name)
            yield from ((format, record) for record in registry().owners("formats", format.name) if not record.own)


def format_lowering(backend: str, format: Format) -> str:
    """The name by which `iron.lowerings.v1` has how a backend reads a format, "host.acme.int5" for one: with its distribution in front
    where one was chosen."""
    name = f"{backend}.{format.name}"
    pick = pick_for(name)
    return name if pick is None else pick.qualified


def said(backend: str, op: Any, dev: str) -> str:
    """Whose lowering takes an operator instance, who chose it, and why those asked before did not take it; "" where there was no
    choice."""
    refused: list[str] = []
    for one in asked(backend, op, dev):
        if isinstance(one.answer, No):
            refused.append(f"; {one.record.owner}{f', by {one.by},' if one.by else ''} does not take it: {one.answer.rule}")
            continue
        others = [record.owner for record in offering(lowering_name(backend, type(op))) if record is not one.record]
        if one.by:
            return f"{one.record.owner}, by {one.by}{''.join(refused)}"
        offer = "" if refused or not others else f"; {' and '.join(others)} offer{'s' * (len(others) == 1)} one too"
        return f"{one.record.owner}, by default{offer}{''.join(refused)}" if others else ""
    return f"none{''.join(refused)}" if len(refused) > 1 else ""


def _had(name: str, operator: type) -> tuple[Record, Lowering] | None:
    known = registry()
    key = (known, name, operator)
    if key not in _found:
        _found[key] = _look_up(known, name)
    return _found[key]


def _look_up(known: Registry, name: str) -> tuple[Record, Lowering] | None:
    record = known.loaded(GROUP, name)
    if record is None:
        return None
    found = record.object
    backend, _, of = record.name.partition(".")
    if found.backend not in ("", backend) or found.operator not in ("", of):
        raise PluginError(
            f"{name}: its entry point names {found.__module__}.{found.__qualname__}, whose backend is {found.backend!r} and operator "
            f"{found.operator!r}. Legal: an entry point of their name, {found.backend}.{found.operator}."
        )
    if found not in _instances:
        try:
            with foreign.guarded():
                made = found()
        except foreign.Raised as raised:
            raise PluginError(f"lowering `{name}` of {record.origin} cannot be made: {raised}.") from raised.error
        _instances.setdefault(found, made)
    return record, _instances[found]
