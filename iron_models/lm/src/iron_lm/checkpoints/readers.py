"""Which reader of `iron.checkpoints.v1` opens a path. One that fails is passed over, in a warning, and keeps none of the
others from reading; what Iron's own recognise, they read."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from iron_core import Format
from iron_core.errors import CheckpointError, IronError, PluginError, PluginWarning, UsageError, printable
from iron_core.plugins import foreign
from iron_core.plugins.record import Record
from iron_core.plugins.registry import registry

#: Readers that have a distribution of their own: what names of their files end in, the reader, the distribution.
_APART = {".q4nx": ("q4nx", "iron-q4nx"), ".onnx": ("onnx", "iron-onnx")}


def recognised(path: Path, head: bytes) -> tuple[Record | None, str]:
    """The reader of a path, and for where there is none: who was asked and who failed.

    CheckpointError where two recognise it and neither is known to be wrong.
    """
    asked, failed, claims = [], "", []
    for name in registry().names("checkpoints"):
        try:
            record = registry().loaded("checkpoints", name)
        except PluginError as error:
            failed += f" {printable(error, 120)}"
            continue
        assert record is not None
        why = _claims(record, path, head)
        if isinstance(why, str):
            _pass_over(record, f"its sniff {why}")
            failed += f" {record.owner} failed: {printable(record.detail, 120)}."
            continue
        asked.append(name)
        if why:
            claims.append(record)
    chosen = _chosen(path, claims)
    return chosen, f"Readers: {', '.join(asked) or 'none'}.{failed}{'' if chosen else _absent(path)}"


def named(name: str) -> Record:
    """The reader of a name, or of `distribution:name`: who asks for it has it read what it would not recognise too. UsageError lists
    those there are; PluginError for one that cannot be had, or that two distributions have."""
    record = registry().loaded("checkpoints", name)
    if record is None:
        raise UsageError(f"reader {registry().missing('checkpoints', name).removeprefix('no checkpoint ')}")
    return record


def _absent(path: Path) -> str:
    """Of a path that a distribution of ours reads, which is not there or hidden: which one."""
    for ending, (name, distribution) in _APART.items():
        if path.name.endswith(ending) or (path.is_dir() and any(path.glob(f"*{ending}"))):
            try:
                there = registry().find("checkpoints", name)
            except PluginError as error:
                return f" *{ending}: {printable(error, 200)}."
            if there is None:
                return f" *{ending} is read by {distribution}, which is not installed."
    return ""


def opened(record: Record, path: Path, said: Mapping[str, Any]) -> Any:
    """What a reader makes of a path: `metadata`, `tensors` and, if it likes, `described`. said: keywords for it; UsageError for one
    that it does not take."""
    _check_said(record, path, said)
    if record.own:
        return record.object.open(path, **said)
    by = f"(reader `{record.name}` of {record.owner})"
    try:
        with foreign.guarded():
            file = record.object.open(path, **said)
            wrong = _wrong(file)
    except foreign.Raised as raised:
        if isinstance(raised.error, IronError):
            raise raised.error from None
        raise CheckpointError(f"{path}: {raised} {by}.") from raised.error
    if wrong:
        raise CheckpointError(f"{path}: {wrong} {by}.")
    return file


def _check_said(record: Record, path: Path, said: Mapping[str, Any]) -> None:
    if said:
        takes = inspect.signature(record.object.open).parameters
        for name in said.keys() - takes.keys():
            raise UsageError(f"{path}: a {record.name} checkpoint says by itself what is stored; {name} is for one that does not.")


def _claims(record: Record, path: Path, head: bytes) -> bool | str:
    """What it says of a path; or what is wrong with that."""
    try:
        with foreign.guarded():
            says = record.object.sniff(path, head)
    except foreign.Raised as raised:
        return f"raised {raised}"
    return bool(says) if isinstance(says, bool | np.bool_) else f"returned {foreign.kind_of(says)}; legal: True or False"


def _chosen(path: Path, claims: list[Record]) -> Record | None:
    own = [record for record in claims if record.own]
    if len(own) > 1:
        raise CheckpointError(f"{path}: holds {' and '.join(r.name for r in own)} checkpoints; name the file that is meant.")
    others = [record for record in claims if not record.own]
    if own or len(others) > 1:
        for record in list(others):
            # An empty file is nobody's: who takes it takes everything.
            if _claims(record, Path(os.devnull), b"") is True:
                _pass_over(record, f"its sniff takes everything, {os.devnull} too")
                others.remove(record)
            elif own:
                _say(
                    record,
                    f"leaves {path} to `{own[0].name}` of {own[0].owner}, which recognises it as well; --reader {_reached(record)} "
                    "has it read",
                )
    if own:
        return own[0]
    if len(others) > 1:
        who = " and ".join(f"`{r.name}` of {r.owner}" for r in others)
        raise CheckpointError(
            f"{path}: {who} both recognise it; say which: --reader {_reached(others[0])} or {_reached(others[-1])}; "
            f"or hide one: IRON_PLUGINS=-{others[-1].distribution}."
        )
    return others[0] if others else None


def _reached(record: Record) -> str:
    """What names a reader, and no other."""
    return record.name if len(registry().owners("checkpoints", record.name)) == 1 else f"{record.distribution}:{record.name}"


def _pass_over(record: Record, why: str) -> None:
    record.fail(why)
    _say(record, f"is passed over: {why}. {record.fix}")


def _say(record: Record, what: str) -> None:
    warnings.warn(f"reader `{record.name}` of {record.owner} {what}.", PluginWarning, stacklevel=5)


def _wrong(file: Any) -> str:
    """Why something is no open checkpoint; "" if it is one."""
    metadata, tensors = getattr(file, "metadata", None), getattr(file, "tensors", None)
    if not isinstance(metadata, Mapping) or not isinstance(tensors, Mapping):
        return f"open() gave {foreign.kind_of(file)} without `metadata` and `tensors`, two mappings"
    for name, entry in tensors.items():
        shown = printable(repr(name), 60)
        if not isinstance(name, str) or not isinstance(entry, tuple | list) or len(entry) != 3:
            return f"tensor {shown} is {foreign.kind_of(entry)}; legal: (shape, format, array) by name"
        shape, format, array = entry
        if not isinstance(shape, tuple | list) or not all(type(n) is int and n >= 0 for n in shape):
            return f"tensor {shown} has {foreign.kind_of(shape)} for a shape; legal: a tuple of ints"
        if not isinstance(format, Format):
            return f"tensor {shown} has {foreign.kind_of(format)} for a format; legal: Dense(dtype) or another Format"
        if tuple(getattr(array, "shape", ())) != tuple(shape):
            return f"tensor {shown} is {foreign.kind_of(array)} of another shape than {tuple(shape)}"
    return ""
