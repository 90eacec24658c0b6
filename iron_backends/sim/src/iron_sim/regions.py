"""Tensors of a call as a simulated array finds them in the host's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iron_core.array.design import Design
from iron_core.declare.formats import PackedArray
from iron_core.declare.objects import ObjectType
from iron_core.declare.tensor import plain
from iron_sim.control import encode
from iron_sim.dma import HostRegion
from iron_sim.memory import Mem


def regions_of(design: Design, tensors: Mapping[str, Any]) -> dict[str, HostRegion]:
    """Host memory of a design: given tensors hold their numbers, others are unwritten."""
    found: dict[str, HostRegion] = {}
    base = 0
    tensors = {name: plain(given, name) for name, given in tensors.items() if given is not None}
    for argument in design.sequence.arguments:
        # What a call is given of control words are the ids they are made of.
        gather = argument.control
        kind = ObjectType.of(argument.elements, argument.dtype_name) if gather is None else ObjectType.of(gather.rows, "int32")
        given = tensors.get(argument.operand)
        if given is None:
            mem = Mem.fresh(kind)
        else:
            raw = given.data if isinstance(given, PackedArray) else given
            mem = Mem.holding(kind, np.ascontiguousarray(raw).reshape(-1).view(kind.dtype))
        region = HostRegion(argument.operand, mem.data, mem.mask, base)
        found[argument.operand] = region if gather is None else encode(gather, region, found[gather.table])
        base += -(-found[argument.operand].data.nbytes // 64) * 64
    return found


def whole(op: Any, name: str, tensor: Any) -> Any:
    """An input of a bounded call as it is in memory, in the operand's shape: what lies behind the bounds is no number."""
    if tensor is None or tuple(tensor.shape) == op.shape(name):
        return tensor
    if isinstance(tensor, PackedArray):
        found = op.format(name).zeros(op.shape(name))
        found.data[tuple(slice(n) for n in tensor.data.shape)] = tensor.data
        return found
    behind = 0x7F if tensor.dtype.kind in "iu" else np.nan
    found = np.full(op.shape(name), behind, tensor.dtype)
    found[tuple(slice(n) for n in tensor.shape)] = tensor
    return found
