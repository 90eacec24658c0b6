"""FastFlowLM's operators. Names load on first use: importing one operator imports one operator's module."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import _iron_start

_iron_start.check()

_HOME = {
    "DequantBFP": "dequant_bfp",
    "GEMM": "gemm",
    "Shipped": "shipped",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'iron_ops_flm' has no operator {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"iron_ops_flm.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
