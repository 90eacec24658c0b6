"""`Traffic`: what went between a caller and a device."""

from __future__ import annotations

from typing import Self

import attrs


@attrs.define
class Traffic:
    """Bytes that a backend copied between its callers' memory and what steps work on, and how often it configured an array.

    inputs, outputs: tensors of calls. words: the numbers of calls, as the device is given them. residents: weights and states, where
    they are placed or written. Whatever a step finds in place is not copied: on the host an input, an output and a mapped weight.
    loads: configurations of an array, by the host's request; a host has none.

    `after - before` is what lay between two of them.
    """

    inputs: int = 0
    outputs: int = 0
    words: int = 0
    residents: int = 0
    loads: int = 0

    def __sub__(self, before: Self) -> Self:
        if not isinstance(before, type(self)):
            return NotImplemented
        mine, others = attrs.astuple(self), attrs.astuple(before)
        return type(self)(*(after - earlier for after, earlier in zip(mine, others, strict=True)))
