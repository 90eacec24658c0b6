"""Every case of an operator on every backend that is here, its arrays simulated, its kernels compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from iron_core.array.build import has_array
from iron_core.array.kernel import noting
from iron_core.backends import choose
from iron_core.backends.choose import Choice
from iron_core.backends.protocol import Available, Backend
from iron_core.declare.cases import cases
from iron_core.declare.testing import Case
from iron_core.devices import device
from iron_core.errors import BoundsError, CallError, IronError
from iron_core.plugins.registry import labelled
from iron_core.trials.inline_kernels import KERNELS, InlineKernels
from iron_core.trials.trial import Trial, draw, refusing, told

#: Plans and runs nothing.
PLANS_ONLY = "null"
#: What all others are compared with.
REFERENCE = "reference"
#: Devices whose arrays are tried where nobody says which: one of every family.
FAMILIES = ("npu1", "npu2")


def places(names: Sequence[str | Backend] | None = None, dev: str | None = None) -> list[Choice]:
    """The backends and devices that cases are tried on: those named (or given), else every one that can run here; each on one device of
    every family it takes, or on `dev`.

    BackendUnavailable, UnknownName, UnsupportedError for one that is named and cannot; CallError where none is left.
    """
    found: list[Choice] = []
    backends = _here() if names is None else [choose.choose(name).backend for name in names if name != KERNELS]
    takes = dev is not None and any(dev in backend.devices() for backend in backends)
    for backend in backends:
        taken = backend.devices()
        if backend.name == REFERENCE:  # it is the same for all of them
            wanted = list(taken[:1])
        elif dev is None:
            wanted = [one for one in taken if device(one).family == one] or list(taken[:1])
        elif dev in taken or not (takes or names is None):
            wanted = [dev]
        else:  # one for the CPU, beside what takes the device: there to be compared with
            wanted = [one for one in taken if not device(one).is_npu][:1]
        found += [choose.choose(backend, one) for one in wanted]
    return found


def _here() -> list[Backend]:
    """The backends that can run here, the reference first. Why others cannot `iron backends list` says."""
    found = []
    for name in sorted(choose.names(), key=lambda name: (name != REFERENCE, name)):
        with suppress(IronError):
            backend = choose.get(name)
            if name != PLANS_ONLY and isinstance(choose.probe(backend), Available):
                found.append(backend)
    return found


def array_devices(chosen: Sequence[Choice], dev: str | None = None) -> tuple[str, ...]:
    """The devices whose arrays' kernels are compiled: those of the places, else `dev`, else one of every family."""
    met = tuple(dict.fromkeys(one.dev for one in chosen if device(one.dev).is_npu))
    return met or ((dev,) if dev is not None and device(dev).is_npu else FAMILIES)


def bounded(case: Case, cls: Any, bounds: Mapping[str, int]) -> dict[str, int]:
    """The bounds of a case where these are given for a call: of members that the operator has, in place of the case's own.

    CallError for one that is no extent of it.
    """
    for name in bounds:
        if name not in cls.extents:
            raise CallError(f"{cls.__name__} has no extent {name}. Its extents: {', '.join(cls.extents) or 'none'}.")
    return case.bounds | dict(bounds)


def trials(
    cls: Any,
    chosen: Sequence[Choice],
    *,
    kernels: InlineKernels | None = None,
    devices: Sequence[str] = FAMILIES,
    bounds: Mapping[str, int] | None = None,
    seed: int = 0,
    extensive: bool = False,
) -> Iterator[Trial]:
    """Case by case: on each of the places, then its arrays' inline kernels on `devices`, where `kernels` judges them.

    bounds: numbers of extents for every case that is as large; the others are refused.
    """
    with labelled(cls, "in its test cases"):
        found = [case for _, case, _ in cases([cls], extensive=extensive)]
    for case in found:
        at = bounded(case, cls, bounds or {})
        name = case.id if at == case.bounds else named_at(case, at)
        try:
            with labelled(cls, "to make an operator of these fields and its inputs"):
                op = cls(**case.fields)
            _fits(op, at)
            drawn = draw(op, at, seed)
        except BoundsError as error:
            yield Trial(cls.__name__, name, "-", "-", "refused", says=str(error))
            continue
        except Exception as error:
            yield Trial(cls.__name__, name, "-", "-", "FAILED", says=told(error))
            continue
        with noting() as noted:
            tried = [refusing(drawn, one, name, lower=case.lower) for one in chosen]
        yield from tried
        if kernels is not None and has_array(cls):
            for dev in devices:
                one = kernels.trial(drawn, dev, name, noted)
                if one is not None:
                    yield one


def named_at(case: Case, bounds: Mapping[str, int]) -> str:
    """A case's id with other bounds than its own."""
    return Case(bounds=bounds, **case.fields).id


def _fits(op: Any, bounds: Mapping[str, int]) -> None:
    for name, n in bounds.items():
        most = getattr(op, type(op).extents[name].field)
        if not 0 < n <= most:
            raise BoundsError(f"{type(op).__name__}: {name}={n}; legal: 1 to {most}.")
