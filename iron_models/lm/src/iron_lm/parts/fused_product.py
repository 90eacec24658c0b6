"""`fused_product`: the product of prompts' chunks on arrays, one array for every shape, where its distribution is installed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from iron_core import bfloat16, current_device, using_device
from iron_core.errors import PluginError, Unresolvable
from iron_core.plugins.registry import registry

FUSED = "flm.GEMM"


def fused_product(M: int, K: int, N: int, *dtypes: Any) -> tuple[Any, str]:
    """`flm.GEMM` where it multiplies M rows of K by a matrix (N, K), of these dtypes and formats, on the current device's array;
    else None, and why not."""
    dev = current_device()
    if dev is None or not dev.is_npu:
        return None, "there is no array"
    if any(dtype != bfloat16 for dtype in dtypes):
        return None, f"{FUSED} is of bfloat16 alone"
    try:
        cls = registry().find("operators", FUSED)
        if cls is None:
            return None, "iron-ops-flm is not installed"
        cls(M=M, K=K, N=N, b_col_maj=True).resolved(dev)
    except (PluginError, Unresolvable) as error:
        return None, str(error)
    return cls, ""


def fused_by() -> str:
    """Whose `flm.GEMM` there is, with its version; empty where there is none."""
    return ", ".join(record.owner for record in registry().owners("operators", FUSED))


def products_of(compiled: Any) -> tuple[dict[str, int], str]:
    """How many products the prompts' versions of a compiled graph have by either operator, and why not all are `flm.GEMM`."""
    counted: Counter[str] = Counter()
    why = ""
    with using_device(compiled.dev):
        for signature, version in compiled.versions.items():
            for op in (step.op for step in version.plan.steps if signature and type(step.op).__name__ == "GEMM"):
                is_fused = type(op).__module__.startswith("iron_ops_flm.")
                counted[FUSED if is_fused else "GEMM"] += 1
                if not is_fused:
                    why = why or fused_product(op.M, op.K, op.N, op.T, op.W, op.O)[1]
    return dict(counted), why
