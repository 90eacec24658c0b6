"""`Profile`: tunables as data, filled in where a call leaves them open."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from iron_core.declare.field import AutoField
from iron_core.declare.formats import Format
from iron_core.declare.identity import canonical
from iron_core.errors import LONGEST, CallError, IronError, ParamError, printable

#: What an entry calls the choice of a backend's lowering, behind the backend's name.
LOWERING = "lowering"

_ACTIVE: contextvars.ContextVar[tuple[Profile, ...]] = contextvars.ContextVar("iron_profile", default=())


@contextmanager
def under(profile: Profile | None) -> Iterator[None]:
    """Inside the block this profile is the active one, or none is; nobody is told of it."""
    token = _ACTIVE.set(() if profile is None else (profile,))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def active_profile() -> Profile | None:
    """The innermost profile entered with `with profile:`, if any."""
    stack = _ACTIVE.get()
    return stack[-1] if stack else None


def catalog_name(cls: type) -> str:
    """An operator's name in a profile: its class's, after its pack's outside the main catalog (`flm.GEMM`)."""
    pack = cls.__module__.partition(".")[0]
    prefix = "" if pack == "iron_ops_aie" else pack.removeprefix("iron_ops_").removeprefix("iron_") + "."
    return prefix + cls.__name__


def _plain(value: Any) -> Any:
    """A field's value as JSON has it: dtypes and block formats by name."""
    return value.name if isinstance(value, Format) else canonical(value)


@attrs.frozen
class Entry:
    """What to match (operator class and param values) and what to give (tunables)."""

    operator: type
    match: dict[str, Any]
    give: dict[str, Any]


class Profile:
    """Entries keyed by operator class and shape. The most specific match fills each tunable a call leaves open; a backend asks it
    for those of its lowerings.

    >>> profile = Profile()
    >>> profile.add(GEMV, M=2048, K=2048, tile_size_input=4)   # doctest: +SKIP
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, cls: type, **fields: Any) -> None:
        """An entry: params of `cls` say what it matches, tunables what it gives: its own, and those of a backend's lowering, named
        "<backend>.<tunable>"; "<backend>.lowering" names the distribution whose lowering it is."""
        known: dict[str, Any] = cls.fields  # type: ignore[attr-defined]
        lowered = {name: value for name, value in fields.items() if "." in name}
        fields = {name: value for name, value in fields.items() if name not in lowered}
        for name, value in lowered.items():
            if name.rpartition(".")[2] == LOWERING and not isinstance(value, str):
                raise CallError(f"Profile: an entry for {cls.__name__} gives {name}={value!r}; legal: a distribution's name.")
        for name in fields:
            if name not in known:
                raise CallError(f"Profile: {cls.__name__} has no field {name}. Fields: {', '.join(known)}.")
            if isinstance(known[name], AutoField) and known[name].derived:
                raise CallError(f"Profile: {cls.__name__}.{name} is always derived; an entry cannot give it.")
        fields = {k: v if v is None else known[k].convert(v) for k, v in fields.items()}
        give = {k: v for k, v in fields.items() if isinstance(known[k], AutoField)}
        match = {k: v for k, v in fields.items() if k not in give}
        if not give | lowered:
            raise CallError(f"Profile: an entry for {cls.__name__} gives no tunable.")
        self.entries.append(Entry(cls, match, give | lowered))

    def tunables(self, cls: type, known: dict[str, Any]) -> dict[str, Any]:
        """What this profile gives an operator of `cls` whose fields are `known` so far (plain defaults count too)."""
        return {name: value for name, value in self._given(cls, known).items() if name in cls.fields}  # type: ignore[attr-defined]

    def lowered(self, backend: str, op: Any) -> dict[str, Any]:
        """What this profile gives the tunables of a backend's lowering of an operator, by their names there."""
        return {name: value for name, value in self._lowered(backend, op).items() if name != LOWERING}

    def lowering(self, backend: str, op: Any) -> str | None:
        """The distribution whose lowering of an operator this profile chooses for a backend; those tunables are that one's."""
        return self._lowered(backend, op).get(LOWERING)

    def _lowered(self, backend: str, op: Any) -> dict[str, Any]:
        found = self._given(type(op.base), {name: getattr(op, name) for name in op.fields})
        start = f"{backend}."
        return {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}

    def _given(self, cls: type, known: dict[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = cls.fields  # type: ignore[attr-defined]
        best: dict[str, tuple[int, Any]] = {}
        for entry in self.entries:
            if not issubclass(cls, entry.operator):
                continue
            if any(self._value(fields, known, k) != v for k, v in entry.match.items()):
                continue
            for name, value in entry.give.items():
                rank = len(entry.match)
                held = best.get(name)
                if held is not None and held[0] == rank and held[1] != value:
                    raise ParamError(
                        f"Profile is ambiguous: two entries of {cls.__name__} match equally and give "
                        f"{name}={held[1]} and {name}={value}. Make one more specific."
                    )
                if held is None or rank > held[0]:
                    best[name] = (rank, value)
        return {name: value for name, (_, value) in best.items()}

    @staticmethod
    def _value(fields: dict[str, Any], known: dict[str, Any], name: str) -> Any:
        if name in known:
            return known[name]
        field = fields.get(name)
        if field is None or field.required or field.computed or field.default is None:
            return None
        return field.convert(field.default)

    def save(self, path: str | Path) -> None:
        """Write as JSON, an entry a line. Operators are named as their catalog's entry points name them."""
        from iron_core.files import write_whole

        write_whole(path, '{"entries": [\n  ' + ",\n  ".join(self.lines()) + "\n]}\n")

    def lines(self) -> list[str]:
        """Each entry as JSON. Equal lines are equal profiles."""
        lines = []
        for entry in self.entries:
            fields = {k: _plain(v) for k, v in {**entry.match, **entry.give}.items()}
            lines.append(json.dumps({"operator": catalog_name(entry.operator), **fields}))
        return lines

    @classmethod
    def load(cls, path: str | Path, operators: Any = None, dev: Any = None) -> Profile:
        """Read a JSON file, or of a folder the file of a device: `<device>.json`, or its family's; empty where it has neither.

        operators(name) gives the class of an entry; by default the installed catalogs do. dev: of a folder, the device, a
        `Device` or its name; the current one where it is left out. ParamError for a file that is no profile; CallError for an
        entry its operator refuses, and for a folder without a device. One line names the file.
        """
        if Path(path).is_dir():
            from iron_core.devices import meant  # here: declaring operators needs no devices

            found = meant(dev, f"a profile of the folder {printable(path, 120)}")
            files = [file for name in (found.name, found.family) if (file := Path(path) / f"{name}.json").is_file()]
            if not files:
                return cls()
            path = files[0]
        if operators is None:
            from iron_core.plugins.registry import registry

            def operators(name: str) -> Any:
                return registry().load("operators", name)

        profile = cls()
        try:
            for entry in json.loads(Path(path).read_text(encoding="utf-8"))["entries"]:
                fields = dict(entry)
                name = fields.pop("operator")
                if not isinstance(name, str):
                    raise TypeError("an operator's name is a text")
                profile.add(operators(name), **fields)
        except IronError as error:
            raise type(error)(printable(f"{printable(path, 120)}: {error}", LONGEST)) from error
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            form = '{"entries": [{"operator": ..., ...}, ...]}'
            raise ParamError(f"{printable(path, 120)} is no profile ({printable(error, 100)}); a profile is {form}.") from None
        _announce(profile)
        return profile

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __enter__(self) -> Profile:
        _ACTIVE.set((*_ACTIVE.get(), self))
        _announce(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _ACTIVE.set(_ACTIVE.get()[:-1])


def profile_of(given: Any, dev: Any) -> Profile:
    """What a graph or a compile was given as its profile: a Profile, a file, or a folder with a file for each device. CallError for what
    is none; see `Profile.load`."""
    if isinstance(given, Profile):
        return given
    if not isinstance(given, (str, Path)):
        raise CallError(f"profile={printable(repr(given), 80)}; legal: a Profile, or the path of a file or a folder of profiles.")
    if not Path(given).exists():
        raise CallError(f"profile={printable(given, 120)}: no such file or folder.")
    return Profile.load(given, dev=dev)


def _announce(profile: Profile) -> None:
    from iron_core.plugins.hooks import announce  # here: declaring operators needs no plugins

    announce("iron_profile", profile=profile)
