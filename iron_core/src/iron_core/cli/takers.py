"""Who takes an operator: backend by backend and device by device, and where none does, the rule."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from iron_core.errors import CallError, IronError


def takers(cls: Any, given: Any, dev: str | None) -> list[dict[str, Any]]:
    """A row for each backend and device that it lists: backend, device, takes, case, how (by what, or why not).

    given: the operator asked for; None: each of the class's test cases in turn, until one is taken. dev: this device alone, beside the
    CPU's; None: each family that has arrays, whole, and what packs bring. Backends that run nothing are passed over.
    """
    from iron_core.backends import choose
    from iron_core.backends.null import NullBackend

    rows: list[dict[str, Any]] = []
    ops = _operators(cls, given)
    for name in choose.names():
        row = {"backend": name, "device": "-", "takes": False, "case": "", "how": ""}
        try:
            backend = choose.get(name)
            if isinstance(backend, NullBackend):
                continue
            devices = list(_devices(backend, dev))
        except IronError as error:
            rows.append(row | {"how": str(error)})
            continue
        rows += [row | {"device": one} | _answer(backend, ops, one) for one in devices]
    return rows


def _operators(cls: Any, given: Any) -> list[tuple[str, Any]]:
    """(case, operator), of the fields given or of each test case that can be made."""
    if given is not None:
        return [("", given)]
    found = []
    for case in cls.test.cases(cls):
        try:
            found.append((case.id, cls(**case.fields)))
        except IronError as error:
            found.append((case.id, error))
    return found


def _devices(backend: Any, dev: str | None) -> Iterator[str]:
    """One family after another, whole; and the CPU whatever device is asked for."""
    from iron_core.backends.choose import brought, takes
    from iron_core.devices import device

    listed = [*backend.devices(), *brought(backend)]
    if dev is not None and dev not in listed and takes(backend, device(dev)):
        listed.append(dev)
    for name in sorted(listed, key=lambda name: (device(name).is_npu, name)):
        known = device(name)
        if not known.is_npu or (name == dev if dev is not None else name == known.family or known.family not in listed):
            yield name


def _answer(backend: Any, ops: Sequence[tuple[str, Any]], dev: str) -> dict[str, Any]:
    """Of the first operator that is taken; where none is, why the first is not."""
    first: dict[str, Any] = {"how": "no test case says for which fields; give FIELD=VALUE."}
    for number, (case, op) in enumerate(ops):
        answer = {"takes": False, "case": case, "how": str(op)} if isinstance(op, IronError) else {"case": case} | _asked(backend, op, dev)
        if answer["takes"]:
            return answer
        first = first if number else answer
    return first


def _asked(backend: Any, op: Any, dev: str) -> dict[str, Any]:
    from iron_core.lowering.answer import No
    from iron_core.plugins.registry import labelled

    try:
        with labelled(backend, "to say which operators it takes"):
            answer = backend.supports(op, dev)
    except IronError as error:
        return {"takes": False, "how": str(error)}
    if isinstance(answer, No):
        return {"takes": False, "how": f"{answer.rule} {answer.nearest}".rstrip()}
    return {"takes": True, "how": answer.how or "as declared"}


def printing(dev: str | None) -> Any:
    """The first backend that prints what it makes of an operator, and takes a device if one is named. CallError where none is installed,
    or none takes the device."""
    from iron_core.backends import choose
    from iron_core.backends.protocol import Printing
    from iron_core.devices import device

    found = []
    for name in choose.names():
        with contextlib.suppress(IronError):  # one that does not load prints nothing
            backend = choose.get(name)
            if isinstance(backend, Printing):
                found.append(backend)
    if not found:
        raise CallError("no backend that is installed prints what it makes of an operator; iron-npu's prints MLIR.")
    for backend in found:
        if dev is None or dev in backend.devices() or choose.takes(backend, device(dev)):
            return backend
    names, legal = ", ".join(b.name for b in found), ", ".join(found[0].devices())
    raise CallError(f"{names} prints nothing for dev={dev}. Legal: {legal}.")
