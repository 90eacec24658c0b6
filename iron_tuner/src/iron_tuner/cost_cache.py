"""Everything ever measured on a platform, kept: `<NPU_CACHE_HOME>/iron/costs/<platform>/<mode>/<32 hex>.json`, an entry a file.

An entry is written beside its place and renamed, so a tuner that is killed loses what it had not finished and nothing else. It is not
evicted, and `iron cache clean` leaves it: measurements take long to make and no room to keep.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import attrs

from iron_core.aside import aside
from iron_core.backends.measuring import Platform
from iron_core.cache.home import distrust, home, make, refusal
from iron_core.cache.keylock import locked
from iron_core.cache.keys import digest
from iron_core.files import write_whole
from iron_tuner.records import KINDS, is_time

R = TypeVar("R")


def slug(text: str) -> str:
    """A name as a folder: lower case, and '-' for whatever is neither letter nor digit."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


class CostCache:
    """The records of one platform. remeasure: those of earlier processes count as missing. root: the cache's, `home()` unless given.

    A record is known by its kind and its key, whose parts are texts, numbers and tuples of them: no code is in it. CacheError where
    the folder cannot be used.
    """

    def __init__(self, platform: Platform, *, remeasure: bool = False, root: Path | str | None = None) -> None:
        self.platform, self.remeasure = platform, remeasure
        self._root = Path(root) if root is not None else home()
        self.folder = self._root / "iron" / "costs" / slug(platform.name) / slug(platform.mode)
        self._fresh: set[Path] = set()
        self._waited = False

    def get(self, kind: type[R], *key: Any) -> R | None:
        """The record of this key. None where there is none, or one of other fields, as another version of Iron keeps it."""
        path = self._path(kind, key)
        if self.remeasure and path not in self._fresh:
            return None
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            if entry["kind"] != kind.__name__ or entry["platform"] != attrs.asdict(self.platform):
                return None
            return record_of(kind, entry["record"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def put(self, record: Any, *key: Any, of: str = "") -> None:
        """Keep it, in the place of one of the same key. of: what it is about, for people who look into the file."""
        path = self._path(type(record), key)
        entry = {"kind": type(record).__name__, "of": of, "platform": attrs.asdict(self.platform), "record": attrs.asdict(record)}
        with self._errors():
            write_whole(path, json.dumps(entry, indent=1) + "\n")
        self._fresh.add(path)

    @contextlib.contextmanager
    def turn(self, what: str = "measuring") -> Iterator[None]:
        """Held while something is measured in real time: another tuner of this platform waits, for each would disturb the other. what:
        is done in turn, if it is something else. The first wait is said on standard error."""
        with contextlib.ExitStack() as held:
            with self._errors():
                held.enter_context(locked(self.folder, what, self._waits))
            yield

    def _waits(self) -> None:
        if not self._waited:
            aside(f"another tuner measures {self.platform.name}; this one waits for its turn ...")
        self._waited = True

    def _path(self, kind: type, key: tuple[Any, ...]) -> Path:
        if kind.__name__ not in KINDS:
            raise TypeError(f"{kind.__name__} is no kind of record. Legal: {', '.join(KINDS)}.")
        return self.folder / f"{digest(kind.__name__, key)}.json"

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """With a folder that only this user may change; what the system refuses is a CacheError."""
        try:
            make(self.folder)
            why = distrust(self.folder, self._root)
            if why:
                raise refusal(self._root, why)
            yield
        except OSError as error:
            raise refusal(self._root, error) from None


#: What JSON may hold for a field of a record, by the field's type.
_TYPES: dict[str, tuple[type, ...]] = {
    "float": (float, int),
    "float | None": (float, int, type(None)),
    "tuple[float, ...]": (float, int),
    "int": (int,),
    "bool": (bool,),
    "str": (str,),
}


def record_of(kind: type[R], fields: Any) -> R:
    """A record of its fields as JSON has them. ValueError for fields that are not those of its kind, or hold something else."""
    known = {field.name: field.type for field in attrs.fields(kind)}  # type: ignore[arg-type]
    if not isinstance(fields, dict) or set(fields) != set(known):
        raise ValueError(f"a {kind.__name__} has other fields")
    for name, value in fields.items():
        values = value if known[name].startswith("tuple") else [value]
        legal = _TYPES[known[name]]
        counted = float in legal
        if not isinstance(values, list) or not all(type(one) in legal and (one is None or not counted or is_time(one)) for one in values):
            raise ValueError(f"{name} of a {kind.__name__} is a {known[name]}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
