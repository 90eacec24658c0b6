"""FastFlowLM's operators. Names load on first use: importing one operator imports one operator's module."""

from __future__ import annotations

import _iron_start

_iron_start.check()

from iron_core.lazy_names import lazy_names  # noqa: E402 (the iron_core that was checked)

_HOME = {
    "DequantBFP": "dequant_bfp",
    "GEMM": "gemm",
    "Shipped": "shipped",
}

__all__ = sorted(_HOME)
__getattr__, __dir__ = lazy_names(__name__, _HOME)
