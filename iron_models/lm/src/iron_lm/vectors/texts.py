"""Texts of a file of JSON lines."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

from iron_core.errors import UsageError, printable

#: Faults that a message tells one by one.
_TOLD = 3


def read_texts(path: str | Path, field: str = "text") -> list[str]:
    """The texts of a file, a line each: a JSON string, or an object that has one under `field`. UsageError for a file that cannot be
    read or has no lines, and for lines that are neither, by their numbers."""
    shown = printable(path)
    try:
        lines = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror or error}.") from None
    lines = lines[:-1] if lines[-1] == b"" else lines
    if not lines:
        raise UsageError(f"{shown}: no lines; legal: a JSON string, or an object with {field!r}, in each.")
    found = [_text(line, field) for line in lines]
    refuse(path, {number: said for number, (text, said) in enumerate(found, 1) if text is None})
    return [text for text, _ in found if text is not None]


def refuse(path: str | Path, faults: dict[int, str]) -> None:
    """UsageError for lines, by number, of which something is to be said."""
    if faults:
        told = [f"line {number} {said}" for number, said in list(faults.items())[:_TOLD]]
        more = f"; and {len(faults) - _TOLD} lines more" if len(faults) > _TOLD else ""
        raise UsageError(f"{printable(path)}: {'; '.join(told)}{more}.")


def _text(line: bytes, field: str) -> tuple[str | None, str]:
    """A line's text; or None, and what is wrong with it."""
    legal = f"legal: a JSON string, or an object with {field!r}"
    try:
        said = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return None, "is not UTF-8"
    except (ValueError, RecursionError):
        return None, f"is not JSON ({legal})" if line.strip() else f"is empty ({legal})"
    text = said.get(field) if isinstance(said, dict) else said
    if not isinstance(text, str):
        what = f"has no text under {field!r}" if isinstance(said, dict) else "is neither a string nor an object"
        return None, f"{what} ({legal})"
    if not text:
        return None, "has an empty text (legal: one character or more)"
    return (None, "has a lone surrogate, which is no text") if any("\ud800" <= c <= "\udfff" for c in text) else (text, "")
