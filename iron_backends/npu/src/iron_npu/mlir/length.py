"""A transfer's length set per call, on a full ELF: one function, two spellings.

"parameter": mlir-aie's own `length_parameter` on the descriptor. The version of August 2026 does not know it.
"patch": the same effect in operations every version knows: between configuring the task and starting it the sequence sets the
descriptor's length word to zero and adds the parameter to it.
"""

from __future__ import annotations

import attrs

from iron_core.devices import DESCRIPTOR_REGISTERS, DESCRIPTOR_STEP, LENGTH_UNIT
from iron_core.errors import CallError, UnsupportedError
from iron_npu.mlir.text import Writer

PARAMETER, PATCH = "parameter", "patch"
SPELLINGS = (PARAMETER, PATCH)


def known(spelling: str) -> str:
    """The spelling; CallError for one there is not."""
    if spelling not in SPELLINGS:
        raise CallError(f"spelling={spelling!r}; legal: {', '.join(SPELLINGS)}.")
    return spelling


@attrs.frozen
class ScratchpadParameter:
    """A word of the control scratchpad: its symbol, and its number in the order of declaration."""

    symbol: str
    index: int


@attrs.frozen
class Length:
    """How one transfer's length is set: attributes of its descriptor, or what comes after its configuration."""

    attributes: tuple[tuple[str, str], ...] = ()
    factor: int = 0
    parameter: ScratchpadParameter | None = None

    def patch(self, writer: Writer, col: int, descriptor: int) -> None:
        """The operations between configuring and starting; none where the descriptor says it all."""
        if self.parameter is None:
            return
        address = DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * descriptor
        at, zero = writer.constant(address, "i32"), writer.constant(0, "i32")
        writer.line(f"aiex.npu.write32({at}, {zero}) {{column = {col} : i32, row = 0 : i32}} : i32, i32")
        update(writer, self.parameter, self.factor, f"address = {address} : ui32, column = {col} : i32, row = 0 : i32")


def length(parameter: ScratchpadParameter, unit: int, itemsize: int, spelling: str) -> Length:
    """How to make a transfer `parameter` times `unit` elements of `itemsize` bytes long.

    UnsupportedError unless a unit is whole groups of LENGTH_UNIT bytes.
    """
    nbytes = unit * itemsize
    if nbytes % LENGTH_UNIT:
        raise UnsupportedError(f"a length per call in units of {nbytes} bytes; legal: multiples of {LENGTH_UNIT} bytes.")
    if spelling == PARAMETER:
        return Length((("length_parameter", f"@{parameter.symbol}"), ("length_unit", f"{unit} : i32")))
    # The host stores a parameter that is no address shifted left by two, which is 4-byte words of 16-byte groups.
    return Length((), nbytes // LENGTH_UNIT, parameter)


def update(writer: Writer, parameter: ScratchpadParameter, factor: int, where: str) -> None:
    """Add `factor` times a scratchpad word to the pair of words at a place."""
    given = f"state_table_idx = {parameter.index} : ui8, func_arg = {factor} : ui32, {where}"
    writer.line(f"aiex.npu.update_from_scratchpad<mul> {{{given}}}")
