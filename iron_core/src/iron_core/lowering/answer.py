"""`Yes` and `No`: whether a backend, or its lowering, can take a step."""

from __future__ import annotations

import attrs


@attrs.frozen
class Yes:
    """A step can be taken. `how` says by what, e.g. "kernel gemv" or "reference call-back"."""

    how: str = ""


@attrs.frozen
class No:
    """A step cannot be taken: the rule that forbids it and the nearest legal values."""

    rule: str
    nearest: str = ""
