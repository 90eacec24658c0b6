"""The `iron.*` entry points of what is installed, read line by line: a line that is none is a record, and the others hold."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

from iron_core.errors import printable
from iron_core.plugins.foreign import said
from iron_core.plugins.record import LEVELS, Record, normal

GROUP = re.compile(r"iron\.([a-z]+)\.v(\d{1,9})\Z")
#: The group of a record about a line that is in none.
NO_GROUP = "?"
_SHOWN = 60


def scan(distributions: Iterable[Any] | None = None) -> list[Record]:
    """A record for every `iron.*` entry point of the installed distributions, and for what should have been one. Imports
    nothing."""
    records: dict[tuple[Any, ...], Record] = {}
    for dist in metadata.distributions() if distributions is None else distributions:
        for record in _read(dist):
            # The first on the path is the one an import would take.
            records.setdefault((record.group, record.level, record.name, normal(record.distribution), record.own), record)
    order = {group: i for i, group in enumerate(LEVELS)}
    return sorted(records.values(), key=lambda r: (order.get(r.group, len(order)), r.name, r.distribution, not r.own))


def _read(dist: Any) -> Iterator[Record]:
    try:
        text = _text(dist)
        if "iron." not in text:
            return
    except Exception:  # nothing of it can be read, so nothing says that it has to do with iron
        return
    name, version, fault = _names(dist)

    def broken(group: str, level: int, word: str, why: str) -> Record:
        record = Record(group, level, printable(word, _SHOWN), "", name, version, None)
        record.fail(f"{why}; its other entry points hold")
        return record

    if fault:
        yield broken(NO_GROUP, 0, "METADATA", fault)
    seen: dict[tuple[str, int, str], str] = {}
    for group, number, line in _lines(text):
        where = f"line {number} of entry_points.txt, {printable(repr(line), _SHOWN)},"
        match = GROUP.match(group) if group is not None else None
        if match is None or match.group(1) not in LEVELS:
            if group is None or group == "":
                yield broken(NO_GROUP, 0, f"line {number}", f"{where} {'is no [group]' if group == '' else 'stands before any [group]'}")
            elif group.startswith("iron."):
                yield broken(
                    NO_GROUP,
                    0,
                    line.partition("=")[0].strip(),
                    f"{where} is in [{printable(group, _SHOWN)}], which is no group this iron reads",
                )
            continue
        short, level = match.group(1), int(match.group(2))
        word, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not word or ":" in word or not word.isprintable():
            yield broken(short, level, word or f"line {number}", f"{where} is not NAME = MODULE:NAME")
        elif not metadata.EntryPoint.pattern.match(value):
            yield broken(short, level, word, f"{where} is not NAME = MODULE:NAME")
        elif seen.setdefault((short, level, word), value) != value:
            yield broken(short, level, f"{word} (line {number})", f"{where} names it again; the first line holds")
        else:
            yield Record(short, level, word, value, name, version, metadata.EntryPoint(word, value, match.group()))


def _lines(text: str) -> Iterator[tuple[str | None, int, str]]:
    """(group, line's number, line) of every line that is not empty, a comment or a [group]; the group is None before the
    first, and "" for what begins like one and is none: what follows that belongs to nobody."""
    group: str | None = None
    lost = False
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = raw.strip().strip("\ufeff\0")
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            lost = not line.endswith("]")
            group = line.strip("[]").strip()
            if lost:
                yield "", number, line
        elif not lost:
            yield group, number, line


def _text(dist: Any) -> str:
    """Its entry_points.txt; bytes that are no UTF-8 make only their own lines odd."""
    try:
        return dist.read_text("entry_points.txt") or ""
    except UnicodeDecodeError as error:
        wide = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return error.object.decode("utf-16" if wide else "utf-8", "backslashreplace")


def _names(dist: Any) -> tuple[str, str, str]:
    """A distribution's name and version, and what is wrong with them: then they are those of its folder."""
    try:
        name, version = dist.metadata["Name"], dist.metadata["Version"]
        fault = "" if name else "METADATA is missing or names no distribution"
    except Exception as error:
        name = version = None
        fault = f"METADATA cannot be read ({said(error)})"
    folder = str(getattr(getattr(dist, "_path", None), "name", "") or "?")
    stem = re.sub(r"\.(dist|egg)-info$", "", folder)
    if not name:
        name, _, version = stem.partition("-")
    return printable(str(name).strip() or "?", _SHOWN), printable(str(version or "?").strip(), _SHOWN), fault
