"""Steps without a kernel: the operator's numpy reference, run between native steps on the calling thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from iron_core.declare.formats import BlockQuant, PackedArray
from iron_core.declare.rounding import round_to
from iron_core.graph.affine import evaluate
from iron_core.image.plan import BufferRef, PlanStep

from iron_host.memory import as_tensor


def tensor_at(where: int, ref: BufferRef) -> Any:
    """The memory at an address, seen as the tensor a reference describes."""
    raw = np.frombuffer((ctypes.c_uint8 * ref.nbytes).from_address(where), np.uint8)
    return as_tensor(raw, ref.shape, ref.format)


def cut(tensor: Any, bounds: tuple[tuple[int, Any], ...], values: Mapping[str, int]) -> Any:
    """The part of a tensor that this call's bounds leave."""
    if not bounds:
        return tensor
    index = [slice(None)] * len(tensor.shape)
    for axis, expression in bounds:
        index[axis] = slice(evaluate(expression, values))
    return tensor[tuple(index)]


def run_reference(step: PlanStep, where: Callable[[BufferRef], int], values: Mapping[str, int]) -> None:
    """Compute one step by its operator's `reference()` and write what it gives, rounded once.

    `where` gives an operand's address; `values` are this call's numbers.
    """
    op = step.op
    numbers = {binding.member: evaluate(binding.expression, values) for binding in step.bindings}
    extents = {op.extents[m].field: n for m, n in numbers.items() if m in op.extents}
    scratchpads = {m: n for m, n in numbers.items() if m not in op.extents}
    if extents:
        op = op.bounded(**extents)
    tensors = {name: tensor_at(where(ref), ref) for name, ref in step.operands.items()}
    parts = {name: cut(tensor, step.operands[name].bounds, values) for name, tensor in tensors.items()}
    given = []
    for operand in op.inputs:
        part = parts.get(operand.name)
        if part is not None and not isinstance(part, PackedArray):
            part = part.reshape(operand.shape(op))
        given.append(part)
    results = op.reference(*given, **scratchpads)
    results = results if isinstance(results, tuple) else (results,)
    written = [operand for operand in op.outputs if operand.name in parts]
    for operand, result in zip(written, results, strict=True):
        target = parts[operand.name]
        if isinstance(target, PackedArray):
            target.data[...] = result.data.reshape(target.data.shape)
        else:
            rounded = round_to(result, target.dtype)
            target[...] = rounded.reshape(target.shape)


def describe(step: PlanStep) -> str:
    """The operator's name, as the announcement of call-backs says it."""
    kinds = {ref.format.name for ref in step.operands.values() if isinstance(ref.format, BlockQuant)}
    return type(step.op).__name__ + (f" ({', '.join(sorted(kinds))})" if kinds else "")
