"""The `iron.*` entry points of what is installed, read line by line: a line that is none is a record, and the others hold."""

from __future__ import annotations

import codecs
import difflib
import os
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from iron_core.errors import printable
from iron_core.plugins.foreign import said
from iron_core.plugins.record import LEVELS, Record, normal

GROUP = re.compile(r"iron\.([a-z]+)\.v(\d{1,9})\Z")
#: What an entry_points.txt that has to do with Iron has somewhere.
_RELATED = re.compile(r"iron\.|^\s*\[\s*iron", re.I | re.M)
_NAMED = re.compile(r"^(Name|Version)[ \t]*:[ \t]*(.*?)[ \t\r]*$", re.I | re.M)
#: The group of a record about a line that is in none.
NO_GROUP = "?"
_SHOWN = 60


def scan(distributions: Iterable[Any] | None = None) -> list[Record]:
    """A record for every `iron.*` entry point of the installed distributions, and for what should have been one. Imports
    nothing."""
    records: list[Record] = []
    first: dict[tuple[str, bool], _Found] = {}
    for found in _in_order(metadata.distributions() if distributions is None else distributions):
        read = list(_read(found))
        for own in dict.fromkeys(record.own for record in read):
            # The first on the path is the one an import would take.
            before = first.setdefault((normal(found.name), own), found)
            if before is found:
                records += [record for record in read if record.own == own]
            elif before.folder != found.folder or before.version != found.version:
                records.append(_second(found, before))
    order = {group: i for i, group in enumerate(LEVELS)}
    return sorted(records, key=lambda r: (order.get(r.group, len(order)), r.name, r.distribution, not r.own))


@attrs.frozen(eq=False)
class _Found:
    """A distribution with a word of Iron in its entry_points.txt, `text`. fault: what is wrong with its metadata; then name and
    version are those of its folder, of which `info` is the path where that is known."""

    text: str
    name: str
    version: str
    fault: str
    info: Path | None

    @property
    def folder(self) -> Path | None:
        return None if self.info is None else self.info.parent


def _in_order(distributions: Iterable[Any]) -> Iterator[_Found]:
    """Those that have to do with Iron, in the order of the path; of several in one folder the highest version first."""
    together: dict[Path | None, list[_Found]] = {}
    for dist in distributions:
        try:
            text = _text(dist)
            if not _RELATED.search(text):
                continue
        except Exception:  # nothing of it can be read, so nothing says that it has to do with iron
            continue
        found = _Found(text, *_names(dist), _info(dist))
        together.setdefault(found.folder, []).append(found)
    for several in together.values():
        yield from sorted(several, key=lambda one: _numbers(one.version), reverse=True)


def _numbers(version: str) -> tuple[tuple[int, str], ...]:
    found = re.findall(r"(\d+)|([a-z]+)", version.lower())
    return (*((int(digits or -1), letters) for digits, letters in found), (0, ""))  # 2.0rc1 is before 2.0


def _second(found: _Found, before: _Found) -> Record:
    """The record of a distribution that is installed a second time, of which nothing is used."""
    record = Record(NO_GROUP, 0, "METADATA", "", found.name, found.version, None)
    if found.folder == before.folder:  # of which version the modules are, nobody knows
        record.fail(f"version {before.version} is in the same folder, and holds; {printable(found.info)} is what an installation left")
        record.cure = "Remove that folder"
    else:
        record.status = "shadowed"
        record.detail = (
            f"{before.name} {before.version} in {printable(before.folder)} comes first on the path; nothing is used of this one in "
            f"{printable(found.folder)}"
        )
    return record


def _read(found: _Found) -> Iterator[Record]:
    name, version = found.name, found.version

    def broken(group: str, level: int, word: str, why: str) -> Record:
        record = Record(group, level, printable(word, _SHOWN), "", name, version, None)
        record.fail(f"{why}; its other entry points hold")
        return record

    if found.fault:
        record = broken(NO_GROUP, 0, "METADATA", found.fault)
        record.cure = f"Install it again, hide it ({record.hidden}), or remove {printable(found.info)}, if that is all there is of it"
        yield record
    seen: dict[tuple[str, int, str], str] = {}
    for group, number, line in _lines(found.text):
        where = f"line {number} of entry_points.txt, {printable(repr(line), _SHOWN)},"
        match = GROUP.match(group) if group is not None else None
        if match is None or match.group(1) not in LEVELS:
            if group is None or group == "":
                yield broken(NO_GROUP, 0, f"line {number}", f"{where} {'is no [group]' if group == '' else 'stands before any [group]'}")
            elif strange := _strange(group):
                record = broken(NO_GROUP, 0, line.partition("=")[0].strip(), f"{where} is in {strange}")
                record.strange = strange
                yield record
            continue
        short, level = match.group(1), int(match.group(2))
        word, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not word or ":" in word or not word.isprintable():
            yield broken(short, level, word or f"line {number}", f"{where} is not NAME = MODULE:NAME")
        elif not metadata.EntryPoint.pattern.match(value):
            yield broken(short, level, word, f"{where} is not NAME = MODULE:NAME")
        elif (short, level, word) not in seen:
            seen[short, level, word] = value
            yield Record(short, level, word, value, name, version, metadata.EntryPoint(word, value, match.group()))
        elif seen[short, level, word] != value:
            yield broken(short, level, f"{word} (line {number})", f"{where} names it again; the first line holds")


def _strange(group: str) -> str:
    """Of a group that this iron does not read: what to say of it, with the group that may be meant; "" of what is not for iron."""
    if not re.match(r"irons?[._-]", group, re.I):
        return ""
    near = difflib.get_close_matches(group.lower(), (f"iron.{short}.v{level}" for short, level in LEVELS.items()), 1, 0.8)
    if not near and not group.startswith("iron."):
        return ""
    return f"[{printable(group, _SHOWN)}], which is no group this iron reads{f' (did you mean [{near[0]}]?)' if near else ''}"


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


def _info(dist: Any) -> Path | None:
    """The folder of its metadata, where it is one."""
    path = getattr(dist, "_path", None)
    return Path(os.path.realpath(path)) if isinstance(path, Path) else None


def _names(dist: Any) -> tuple[str, str, str]:
    """A distribution's name and version, and what is wrong with them: then they are those of its folder."""
    try:
        # `dist.metadata` parses all of it, the description too, which takes as long as all else that a scan does.
        head = re.split(r"\r?\n\r?\n", dist.read_text("METADATA") or dist.read_text("PKG-INFO") or "", maxsplit=1)[0]
        told = {key.lower(): value for key, value in _NAMED.findall(head)}
        name, version = told.get("name", ""), told.get("version", "")
        fault = "" if name else "METADATA is missing or names no distribution"
    except Exception as error:
        name = version = None
        fault = f"METADATA cannot be read ({said(error)})"
    folder = str(getattr(getattr(dist, "_path", None), "name", "") or "?")
    stem = re.sub(r"\.(dist|egg)-info$", "", folder)
    if not name:
        name, _, version = stem.partition("-")
    return printable(str(name).strip() or "?", _SHOWN), printable(str(version or "?").strip(), _SHOWN), fault
