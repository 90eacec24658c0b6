"""Steps without a kernel: the operator's numpy reference, run between native steps on the calling thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from iron_core.graph.reference import run_step
from iron_core.graph.traced import Region, Tensor, TracedStep
from iron_core.image.plan import BufferRef, PlanStep


def tensor_at(where: int, ref: BufferRef) -> Any:
    """The memory at an address, seen as the tensor a reference describes."""
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * ref.nbytes).from_address(where))
    return ref.format.tensor(raw, ref.shape)


def run_reference(step: PlanStep, where: Callable[[BufferRef], int], values: Mapping[str, int]) -> None:
    """Compute one step by its operator's `reference()`, writing its outputs rounded once.

    `where` gives an operand's address; `values` are this call's numbers.
    """
    regions = {
        name: Region(Tensor(name, "intermediate", ref.shape, ref.format), 0, ref.shape, ref.bounds)
        for name, ref in step.operands.items()
    }
    storage = {name: tensor_at(where(ref), ref) for name, ref in step.operands.items()}
    run_step(TracedStep(step.name, step.op, regions, step.bindings), values, storage)
