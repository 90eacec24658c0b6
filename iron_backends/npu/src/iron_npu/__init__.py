"""Array designs and fused plans as MLIR of mlir-aie's dialects, and the checks of that text."""

from __future__ import annotations

import _iron_start

_iron_start.check()
