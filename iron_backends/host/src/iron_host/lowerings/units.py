"""Kernel units by template and storage types, and the dtypes kernels take."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from iron_core.declare.formats import as_format
from iron_core.lowering.answer import No, Yes
from iron_host.build import Header, Unit

#: Storage types of common.h by dtype.
CPP = {
    "float32": "float",
    "bfloat16": "bf16",
    "float16": "f16",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
}

FLOATS = ("float32", "bfloat16", "float16")

#: Numbers below which a step is not worth handing to another thread.
GRAIN = 16384


def unit(header: str | Header, function: str, *arguments: str) -> Unit:
    """The unit of one instantiation, e.g. unit("rows.h", "softmax", "bf16"), or of a function that is no template. header: one of
    csrc, or a pack's own."""
    symbol = "iron_" + re.sub(r"\W+", "_", "_".join((function, *arguments))).strip("_")
    return Unit(header, f"{function}<{', '.join(arguments)}>" if arguments else function, symbol)


def name_of(dtype: Any) -> str:
    """"bfloat16" of a dtype; a packed format's own name."""
    return as_format(dtype).name


def cpp(dtype: Any) -> str:
    """The storage type of a dtype."""
    return CPP[name_of(dtype)]


def takes(op: Any, what: str, **fields: tuple[str, ...]) -> Yes | No:
    """Yes if every dtype field of `op` is among the names given for it."""
    for field, legal in fields.items():
        name = name_of(getattr(op, field))
        if name not in legal:
            return No(f"{field}={name}: {what} takes {', '.join(legal)}", ", ".join(legal))
    return Yes(f"kernel {what}")


def threads(work: int, grain: int) -> int:
    """Threads worth waking for `work` numbers: one per `grain`; 0 (all) where there is enough for many."""
    wanted = work // grain
    return 1 if wanted < 2 else wanted if wanted < 64 else 0


def by_width(dtype: Any) -> str:
    """A storage type as wide as a dtype, for kernels that only move it."""
    return {1: "uint8_t", 2: "uint16_t", 4: "uint32_t"}[np.dtype(dtype).itemsize]
