"""What backends of the NPU's array, real or simulated, say alike: which devices they take, which operators, which folds."""

from __future__ import annotations

from typing import Any

from iron_core.array.build import build, has_array
from iron_core.array.fit import fit
from iron_core.devices import DEVICES, device
from iron_core.errors import IronError
from iron_core.image.folding import array_refusal
from iron_core.lowering.answer import No, Yes


def array_devices(first: str = "npu2") -> tuple[str, ...]:
    """Every built-in device with an array, `first` first."""
    return (first, *(name for name, dev in DEVICES.items() if dev.is_npu and name != first))


def array_supports(op: Any, dev: str) -> Yes | No:
    """Does the device's array take this operator?"""
    if not has_array(op):
        return No(f"{type(op).__name__} declares no array.", "It runs on the CPU: backend='host'.")
    try:
        design = build(op, dev).design
        fit(design)
    except IronError as error:
        return No(str(error))
    array = design.array
    remark = op.resolved(dev).base.array_remark()
    return Yes(f"array of {len(array.cores)} cores and {len(array.fifos)} fifos{remark and f', {remark}'}")


def array_accepts(fold: Any, dev: str) -> bool | No:
    """Do its cores run what the fold becomes?"""
    rule = array_refusal(fold, device(dev))
    return rule is None or No(rule)
