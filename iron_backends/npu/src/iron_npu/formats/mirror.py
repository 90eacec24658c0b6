"""The JSON behind an xclbin's sections, in which its header and each section stand again, and where the two disagree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from iron_npu.errors import ImageError
from iron_npu.formats.sections import READERS, Bank, Connection, Place, kind_name

START, END = b"XCLBIN_MIRROR_DATA_START", b"XCLBIN_MIRROR_DATA_END"
#: Where a kind's rows stand in its entry: the name of its object, the list in it, and a row's words beside the text that has them.
_ROWS: dict[type, tuple[str, tuple[tuple[str, str], ...]]] = {
    Bank: ("m_mem_data", (("tag", "m_tag"),)),
    Place: ("m_ip_data", (("name", "m_name"),)),
    Connection: ("m_connection", (("argument", "arg_index"), ("kernel", "m_ip_layout_index"), ("memory", "mem_data_index"))),
}
_OBJECTS = {
    "MEM_TOPOLOGY": "mem_topology", "GROUP_TOPOLOGY": "group_topology", "IP_LAYOUT": "ip_layout", "CONNECTIVITY": "connectivity",
    "GROUP_CONNECTIVITY": "group_connectivity",
}  # fmt: skip


def written(header: Mapping[str, str], sections: list[tuple[int, str, int, bytes]]) -> bytes:
    """The mirror of a file: its header's texts, and (kind, name, offset, bytes) of each section."""
    parts = [
        '"schema_version":' + _dumped({"major": "1", "minor": "0", "patch": "0"}),
        '"header":' + _dumped(dict(header)),
    ]
    for kind, name, offset, data in sections:
        entry: dict[str, Any] = {"Kind": str(kind), "Name": name, "Offset": f"{offset:#x}", "Size": f"{len(data):#x}"}
        reader = READERS.get(kind)
        if reader is not None:
            rows = reader.read(data).rows
            held = {"m_count": str(len(rows))}
            if rows:
                field, names = _ROWS[type(rows[0])]
                held |= {field: [{text: str(getattr(row, own)) for own, text in names} for row in rows]}  # type: ignore[dict-item]
            entry["payload"] = {_OBJECTS[kind_name(kind)]: held}
        parts.append('"section_header":' + _dumped(entry))
    return START + ("{" + ",".join(parts) + "}\n").encode() + END


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, in which a name may stand several times."""

    def all(self, name: str) -> list[Any]:
        return [value for key, value in self if key == name]

    def one(self, name: str) -> Any:
        return next(iter(self.all(name)), None)


def disagreements(mirror: bytes, header: Mapping[str, str], sections: list[tuple[int, str, int, bytes]]) -> Iterator[str]:
    """A line for each thing that the mirror says otherwise than the file; `mirror` without its markers."""
    try:
        root = json.loads(mirror.decode(), object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        yield f"the mirror is no JSON: {type(error).__name__}"
        return
    said = root.one("header") if isinstance(root, _Pairs) else None
    if not isinstance(said, _Pairs):
        yield "the mirror has no header"
        return
    for name, text in header.items():
        found = said.one(name)
        if found != text:
            yield f"{name} is {text!r}, in the mirror {_short(found)}"
    entries = root.all("section_header")
    if len(entries) != len(sections):
        yield f"{len(sections)} sections, in the mirror {len(entries)}"
    for number, (entry, (kind, name, offset, data)) in enumerate(zip(entries, sections, strict=False)):
        if not isinstance(entry, _Pairs):
            yield f"section {number} is nothing in the mirror"
            continue
        for what, value in (("Kind", kind), ("Offset", offset), ("Size", len(data))):
            if _number(entry.one(what)) != value:
                yield f"section {number}: {what} is {value:#x}, in the mirror {_short(entry.one(what))}"
        if entry.one("Name") != name:
            yield f"section {number}: Name is {name!r}, in the mirror {_short(entry.one('Name'))}"
        yield from _payload(number, kind, data, entry.one("payload"))


def _payload(number: int, kind: int, data: bytes, payload: Any) -> Iterator[str]:
    """A section's rows beside what the mirror has of them, where both have any."""
    reader = READERS.get(kind)
    held = payload.one(_OBJECTS[kind_name(kind)]) if reader is not None and isinstance(payload, _Pairs) else None
    if reader is None or not isinstance(held, _Pairs):
        return
    try:
        rows = reader.read(data).rows
    except ImageError:
        return  # told where the section is read
    if _number(held.one("m_count")) != len(rows):
        yield f"section {number}: {len(rows)} rows, in the mirror {_short(held.one('m_count'))}"
    if not rows:
        return
    field, names = _ROWS[type(rows[0])]
    listed = held.one(field)
    for k, (row, entry) in enumerate(zip(rows, listed if isinstance(listed, list) else [], strict=False)):
        for own, text in names:
            value, found = getattr(row, own), entry.one(text) if isinstance(entry, _Pairs) else None
            if found is not None and (found != value if isinstance(value, str) else _number(found) != value):
                yield f"section {number}, row {k}: {text} is {value!r}, in the mirror {_short(found)}"


def _number(text: Any) -> int | None:
    """A number written in tens or, behind 0x, in sixteens."""
    try:
        return int(text, 0) if isinstance(text, str) and len(text) < 40 else None
    except ValueError:
        return None


def _short(value: Any) -> str:
    shown = repr(value) if not isinstance(value, list) else "an object"
    return "nothing" if value is None else shown if len(shown) <= 60 else f"{shown[:50]}..."
