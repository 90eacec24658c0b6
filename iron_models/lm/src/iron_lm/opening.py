"""`opened`: a checkpoint found, read and made ready to be compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iron_core import Backend
from iron_core.errors import UsageError
from iron_lm import arithmetic, families, loading, quantizing
from iron_lm.architecture import Architecture
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.loading import Loaded


def opened(
    family: str | Path | type[Architecture] | None,
    path: str | Path | None,
    *,
    backend: str | Backend | None,
    dev: str | None,
    dtype: str | None = None,
    quantize: str | None = None,
    activation_scale: str | None = None,
    activations: str | None = None,
    reader: str | None = None,
    quantized_from: str | None = None,
    gptq_zeros: str | None = None,
    **asked: Any,
) -> Loaded:
    """What `load` loads, before anything is compiled; asked: more of `loading.load`'s keywords."""
    family, place = (None, family) if path is None else (family, path)
    if not isinstance(place, (str, os.PathLike)) or place == "":
        raise UsageError(f"load({place!r}) names no checkpoint; legal: load(path), load(family, path).")
    if isinstance(family, type) and not issubclass(family, Architecture):
        raise UsageError(f"load({family!r}, ...) names no family; legal: its name, its class, or load(path), which finds it.")
    quantizing.asked(quantize, activation_scale, activations)
    checkpoint = Checkpoint.open(place, reader=reader, quantized_from=quantized_from, gptq_zeros=gptq_zeros)
    if not isinstance(family, type):
        family = families.of(checkpoint) if family is None else families.named(str(family))
    dtype = dtype or arithmetic.dtype_on(backend, dev)
    if quantize is not None:
        activation_scale = arithmetic.scale_on(backend, dev, activation_scale)
    return loading.load(
        family, checkpoint, dtype=dtype, activations=activations, quantize=quantize, activation_scale=activation_scale, **asked
    )
