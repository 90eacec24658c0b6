"""The main operator catalog. Names load on first use: importing one operator imports one operator's module."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import _iron_start

_iron_start.check()

_HOME = {
    "Copy": "copy",
    "Dequant": "dequant",
    "ElementwiseAdd": "elementwise_add",
    "ElementwiseMul": "elementwise_mul",
    "Emit": "emit",
    "GELU": "gelu",
    "GEMM": "gemm",
    "GEMV": "gemv",
    "LayerNorm": "layer_norm",
    "MHA": "mha",
    "RMSNorm": "rms_norm",
    "ReLU": "relu",
    "Repeat": "repeat",
    "RoPE": "rope",
    "RowwiseAdd": "rowwise_add",
    "RowwiseMul": "rowwise_mul",
    "Sample": "sample",
    "Scale": "scale",
    "SiLU": "silu",
    "SoftCap": "soft_cap",
    "Softmax": "softmax",
    "Transpose": "transpose",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'iron_ops_aie' has no operator {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"iron_ops_aie.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
