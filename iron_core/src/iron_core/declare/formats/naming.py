"""Formats by name, and the format of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.declare.dtypes import DTYPES
from iron_core.declare.formats.dense import Dense
from iron_core.declare.formats.format import Format
from iron_core.errors import FormatError, PluginError

#: Entry-point group of formats.
GROUP = "iron.formats.v1"


def as_format(spec: Any) -> Format:
    """A Format of a Format, of a dtype in any form, or of a name: a dtype's or a format's (`iron.formats.v1`). FormatError."""
    if isinstance(spec, Format):
        return spec
    if not isinstance(spec, str) or spec in DTYPES:
        return Dense(spec)
    from iron_core.plugins.registry import registry  # here: a declaration that names no format needs no plugins

    record = registry().loaded(GROUP, spec)
    if record is None:
        known = ", ".join([*DTYPES, *registry().names(GROUP)])
        raise FormatError(f"{spec!r} is neither a dtype Iron carries nor a format. Legal: {known}.")
    if record.object.name != record.name:
        raise PluginError(f"format `{record.name}` of {record.owner} calls itself {record.object.name!r}; both names have to be one.")
    return record.object


def format_of(array: Any) -> Format:
    """The Format of a tensor: an array, a PackedArray, or whatever says its format."""
    found = getattr(array, "format", None)
    return found if isinstance(found, Format) else Dense(np.asarray(array).dtype)
