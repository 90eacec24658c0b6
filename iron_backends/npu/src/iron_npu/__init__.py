"""Array designs and fused plans as MLIR of mlir-aie's dialects."""

from __future__ import annotations

import _iron_start

_iron_start.check()
