"""Streams that wait for one bank of host memory: those that walk on side by side, whole periods of the banks apart."""

from __future__ import annotations

import math
from collections.abc import Mapping

from iron_core.array.descriptors import Descriptor
from iron_core.array.design import Design
from iron_core.array.sequence import Transfer
from iron_core.declare.formats import as_dtype
from iron_sim.timing.hardware import Hardware


def shared_rates(design: Design, hw: Hardware) -> Mapping[str, float]:
    """GB/s that each fifo into the array has of a bank, where it shares one; by what each reads most of.

    Streams that start whole periods apart and read on without a gap stay in one bank, where every burst of one opens its row anew.
    """
    if not hw.bank_rate.value:
        return {}
    items = {argument.operand: as_dtype(argument.dtype_name).itemsize for argument in design.sequence.arguments}
    longest: dict[str, Transfer] = {}
    for transfer in design.sequence.transfers():
        if transfer.way == "fill" and transfer.elements > (longest[transfer.fifo].elements if transfer.fifo in longest else 0):
            longest[transfer.fifo] = transfer
    banks: dict[tuple[str, float], dict[str, int]] = {}
    for fifo, transfer in longest.items():
        at = transfer.descriptors[0].offset * items[transfer.operand]
        if all(map(_gapless, transfer.descriptors)):
            banks.setdefault((transfer.operand, at % hw.bank_period.value), {})[fifo] = at
    rates = {}
    for fifos in banks.values():
        share = hw.bank_rate.value / len(set(fifos.values()))
        if len(set(fifos.values())) > 1:
            rates.update(dict.fromkeys(fifos, share))
    return rates


def _gapless(descriptor: Descriptor) -> bool:
    """Are its elements one after the other?"""
    steps = [(n, stride) for n, stride in zip(descriptor.sizes, descriptor.strides, strict=True) if n > 1]
    return all(stride == math.prod(n for n, _ in steps[at + 1 :]) for at, (_, stride) in enumerate(steps))
