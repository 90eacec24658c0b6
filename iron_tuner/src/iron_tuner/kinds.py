"""Which decisions a narrowing makes."""

from __future__ import annotations

import attrs


@attrs.frozen
class NarrowingKinds:
    """widths: designs' settings. folds: which steps are folded into others; where False, those that `compile(fold=)` asks for. packs: which
    arrays share a configuration."""

    widths: bool = True
    folds: bool = True
    packs: bool = True
