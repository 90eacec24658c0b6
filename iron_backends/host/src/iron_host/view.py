"""`View`: a packed format as kernels read it: a C++ struct, written from the format's planes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs

from iron_core.declare.formats import (
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Format,
    Plane,
)
from iron_core.errors import PluginError
from iron_core.lowering import Lowering
from iron_core.lowering.answer import No
from iron_core.lowering.registry import format_lowering
from iron_core.plugins.registry import labelled, registry
from iron_host.build import Header, Unit


@attrs.frozen
class View:
    """What a kernel's template is given for a format.

    name: the struct's, in namespace iron or with its own. header: what kernels that take it stand in: "blocks.h" for the
    numbers that it multiplies fastest, "packed.h" for any other, or a pack's own header, which includes packed.h and has the
    struct. source: the struct's text where no header has it. block_bytes: of `columns` numbers of a row in the tiles of blocks.h.
    """

    name: str
    header: str | Header = "packed.h"
    source: str = ""
    block_bytes: int = 0
    columns: int = 32

    @property
    def blocks(self) -> bool:
        """Are they numbers that blocks.h multiplies?"""
        return self.header == "blocks.h"

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of so many numbers in the tiles of blocks.h."""
        return columns // self.columns * self.block_bytes

    def unit(self, kernel: str, *arguments: str) -> Unit:
        """The kernel template of blocks.h or packed.h for this format and further arguments."""
        symbol = "iron_" + re.sub(r"\W+", "_", "_".join((kernel, self.name, *arguments)))
        return Unit(self.header, f"{kernel}<{', '.join((self.name, *arguments))}>", symbol, self.source)


#: What superblocks.h reads, and the bytes of a block in its tiles.
_SUPER: dict[Format, int] = {
    **{Q5_0: 22, Q5_1: 24, Q2_K: 84, Q3_K: 114, Q4_K: 148, Q5_K: 180, Q6_K: 210},
    **{IQ4_NL: 18, IQ4_XS: 138, MXFP4: 17},
}


class FormatLowering(Lowering):
    """How the host reads a format whose planes do not say enough. Register it in `iron.lowerings.v1` as `host.<format's name>`."""

    backend = "host"

    def view(self, format: Format) -> View:
        """The struct that reads a row of it, in a header of the pack's own."""
        raise TypeError(f"{type(self).__name__} defines no view().")


def view_of(format: Format) -> View | None:
    """The view of a packed format: by its planes, or as the lowering registered for it says; None where there is neither."""
    if format in _SUPER:
        return View(format.name.upper(), "blocks.h", '#include "superblocks.h"\n', _SUPER[format], format.block[1])
    if format.planes:
        return _generated(format)
    found: Any = registry().find("iron.lowerings.v1", format_lowering("host", format))
    if found is None:
        return None
    if not issubclass(found, FormatLowering):
        raise PluginError(f"host.{format.name}: the lowering of a format is a class deriving from iron_host.lowering.FormatLowering.")
    with labelled(found, f"to say how the host reads {format.name}"):
        return found().view(format)  # type: ignore[no-any-return]


def row_view_of(format: Format) -> View | None:
    """The view of a packed format in packed.h, which reads it row by row, blocks.h or not; None where there is none."""
    return _by_rows(format) if format.planes else view_of(format)


def no_view(field: str, format: Format) -> No:
    """Why the host has no kernel that reads a format."""
    return No(f"{field}={format.name}: its planes do not say how it is read, and nobody registers a lowering host.{format.name}")


@cache
def _generated(format: Format) -> View:
    name = re.sub(r"\W", "_", format.name).upper()
    fields = _block_fields(format)
    if fields is not None:
        return View(name, "blocks.h", f"namespace iron {{\n{_block_struct(name, format, fields)}}}\n", fields["bytes"])
    return _by_rows(format)


@cache
def _by_rows(format: Format) -> View:
    name = re.sub(r"\W", "_", format.name).upper()
    return View(name, "packed.h", f"namespace iron {{\n{_struct(name, format)}}}\n")


# -- a struct for blocks.h ---------------------------------------------------------------------------

#: Numbers of a row that share a scale in blocks.h.
GROUP = 32
#: Storage types of common.h of what they share.
_SCALES = {"float16": "f16", "bfloat16": "bf16", "float32": "float"}


def _block_fields(format: Format) -> dict[str, int] | None:
    """The numbers that blocks.h has to know of a format; None where it is not of its kind.

    Each 32 numbers of a row, or several times as many, share a scale, and perhaps a minimum, or a zero point, of the same dtype; they
    are signed bytes or nibbles. Where a block has them is its own affair.
    """
    planes = {plane.role: plane for plane in format.planes}
    shared = [planes[role] for role in ("scales", "minima", "zeros") if role in planes]
    if len(planes) < len(format.planes) or "values" not in planes or len(shared) > 2:
        return None
    if any(plane.apart for plane in format.planes) or {plane.number for plane in shared} not in [{number} for number in _SCALES]:
        return None
    if len({plane.group for plane in shared}) > 1 or any(plane.power or plane.zero for plane in shared):
        return None
    high, wide = shared[0].group
    if high != 1 or not wide or wide % GROUP:
        return None
    values = planes["values"]
    if values.number not in ("uint4", "int4", "int8") or (values.signed and values.zero):
        return None
    head = shared[0].dtype.itemsize * len(shared)
    return {
        "bytes": head + GROUP * values.bits // 8,
        "head": head,
        "bits": values.bits,
        "zero": 8 if values.number == "int4" else values.zero,
        "minimum": 1 if "minima" in planes else 2 if "zeros" in planes else 0,
        "plain": int(_plain(format)),
    }


def _plain(format: Format) -> bool:
    """Are its rows block after block, each as a tile has one?"""
    *heads, values = format.planes
    if not format.by_rows or format.block != (1, GROUP) or [plane.role for plane in heads] not in (["scales"], ["scales", "minima"]):
        return False
    if heads[0].bits != 16:
        return False
    if values.number == "uint4":
        return values.columns == (GROUP // 2,) and values.order == (0, 2, 1) and not values.rows
    return values.number == "int8" and not (values.columns or values.rows)


def _block_struct(name: str, format: Format, fields: dict[str, int]) -> str:
    """Numbers of a block in a tile, and where a matrix has its own."""
    planes = {plane.role: plane for plane in format.planes}
    listed = ", ".join(f"{field} = {value}" for field, value in fields.items())
    scale, size = _SCALES[planes["scales"].number], planes["scales"].dtype.itemsize
    lines = [
        f"struct {name} {{\n  typedef {scale} Scale;\n  enum {{ {listed} }};\n",
        f"  INLINE int64_t size(int64_t M, int64_t K) {{ return {_size(format)}; }}\n",
    ]
    for plane, at in _inside(format):
        given, index = "const uint8_t* w, uint64_t K, uint64_t m, uint64_t k", _index(plane, format, "k")
        block = f"({_block(format)} + {at})"
        if plane.role == "values":
            less = f" - {plane.zero}" if plane.zero else ""
            lines.append(f"  INLINE int32_t integer({given}) {{ return {_stored(plane, block, index)}{less}; }}\n")
        else:
            called = "scale" if plane.role == "scales" else "lowest"
            lines.append(f"  INLINE const uint8_t* {called}({given}) {{ return {block} + {size} * ({index}); }}\n")
    if not fields["minimum"]:
        lines.append("  INLINE const uint8_t* lowest(const uint8_t*, uint64_t, uint64_t, uint64_t) { return 0; }\n")
    return "".join([*lines, "};\n"])


def _across(format: Format) -> str:
    """Blocks of a row of K."""
    columns = format.block[1]
    return f"((K + {columns - 1}) / {columns})" if format.padded else f"(K / {columns})"


def _size(format: Format) -> str:
    """Bytes of the blocks of a matrix of M x K."""
    return f"M / {format.block[0]} * {_across(format)} * {format.block_bytes}"


def _block(format: Format) -> str:
    """Where the block of number (m, k) begins."""
    return f"w + (m / {format.block[0]} * {_across(format)} + k / {format.block[1]}) * {format.block_bytes}"


def _inside(format: Format) -> Iterator[tuple[Plane, int]]:
    """The planes of a block, and the byte at which each begins in it."""
    at = 0
    for plane in format.planes:
        if not plane.apart:
            yield plane, at
            at += plane.nbytes(format.block)


# -- a struct for any planes -------------------------------------------------------------------------


def _struct(name: str, format: Format) -> str:
    """`bytes` of a matrix and `row`, which reads one of its rows, a step of numbers that share what they share at a time."""
    columns = format.block[1]
    places = dict(_inside(format))
    total = [_size(format)] if places else []
    apart, inside = [], []
    for i, plane in enumerate(format.planes):
        if plane.apart:
            apart.append(f"    const uint8_t* p{i} = {' + '.join(['w', *total])};\n")
            total.append(_bytes(plane))
        else:
            inside.append(f"      const uint8_t* p{i} = block + {places[plane]};\n")
    if places:
        inside.insert(0, f"      const uint8_t* block = {_block(format)};\n")
    steps = [plane.group[1] for plane in format.planes if plane.role != "values" and plane.group[1]] + [columns] * bool(places)
    step = str(math.gcd(*steps)) if steps else "K"
    lines = [
        f"struct {name} {{\n",
        f"  INLINE int64_t bytes(int64_t M, int64_t K) {{ return {' + '.join(total)}; }}\n",
        "  INLINE void row(const uint8_t* w, int64_t M, int64_t K, int64_t m, float* y) {\n",
        *apart,
        f"    for (int64_t k = 0; k < K; k += {step}) {{\n",
        *inside,
        *_shared(format),
        f"      for (int64_t i = 0; i < {step}; i++) y[k + i] = {_value(format)};\n",
        "    }\n  }\n};\n",
    ]
    return "".join(lines)


def _shared(format: Format) -> Iterator[str]:
    """Lines that read what a step's numbers share, each by its role's name."""
    for i, plane in enumerate(format.planes):
        if plane.role != "values":
            kind = "int32_t" if plane.role == "zeros" and plane.integer else "float"
            yield f"      const {kind} {plane.role} = {_number(plane, f'p{i}', _index(plane, format, 'k'), kind)};\n"


def _value(format: Format) -> str:
    """Number k + i of a row."""
    values = [(i, plane) for i, plane in enumerate(format.planes) if plane.role == "values"]
    shared = {plane.role: plane for plane in format.planes if plane.role != "values"}
    parts = [
        _stored(plane, f"p{i}", _index(plane, format, "(k + i)")) + (f" << {plane.shift}" if plane.shift else "") for i, plane in values
    ]
    less = f" - {values[0][1].zero}" if values[0][1].zero else ""
    zeros = " - zeros" if "zeros" in shared else ""
    # Zero points that are integers are taken from the integer.
    whole, rest = (zeros, "") if zeros and shared["zeros"].integer else ("", zeros)
    value = f"(float)(({' | '.join(parts)}){less}{whole}){rest}"
    return f"madd(scales, {value}, minima)" if "minima" in shared else f"scales * ({value})"


def _extent(plane: Plane, axis: int, n: str | int) -> str | int:
    """Numbers of a plane along an axis of n rows or columns."""
    group = plane.group[axis]
    if not group:
        return 1
    return n // group if isinstance(n, int) else n if group == 1 else f"({n} / {group})"


def _bytes(plane: Plane) -> str:
    """Bytes of a plane of a matrix of M x K."""
    return f"{_extent(plane, 0, 'M')} * {_extent(plane, 1, 'K')} * {plane.bits} / 8"


def _index(plane: Plane, format: Format, k: str) -> str:
    """Where the number for row m, column k is among a plane's stored numbers."""
    extents: tuple[str | int, str | int] = ("M", "K") if plane.apart else format.block
    sizes: list[str | int] = []
    places: list[str] = []
    for axis, (where, inner) in enumerate((("m", plane.rows), (k, plane.columns))):
        if not plane.apart:
            where = "0" if format.block[axis] == 1 else f"({where} % {format.block[axis]})"
        group = plane.group[axis]
        where = "0" if not group or where == "0" else where if group == 1 else f"({where} / {group})"
        whole, step = _extent(plane, axis, extents[axis]), math.prod(inner)
        sizes.append(whole // step if isinstance(whole, int) else whole if step == 1 else f"({whole} / {step})")
        places.append(where if step == 1 or where == "0" else f"({where} / {step})")
        for n in inner:
            step //= n
            sizes.append(n)
            places.append("0" if where == "0" else f"({where} / {step} % {n})" if step > 1 else f"({where} % {n})")
    terms, stride = [], "1"
    for part in reversed(plane.order or range(len(sizes))):
        if places[part] != "0":
            terms.append(places[part] if stride == "1" else f"{places[part]} * {stride}")
        stride = str(sizes[part]) if stride == "1" else f"{sizes[part]} * {stride}"
    return " + ".join(terms) or "0"


#: How common.h and packed.h read a stored number.
_READ = {"float32": "at<float>", "bfloat16": "at<bf16>", "float16": "at<f16>"}


def _stored(plane: Plane, pointer: str, index: str) -> str:
    """The stored integer."""
    return f"{'signed' if plane.signed else 'unsigned'}_at<{plane.bits}>({pointer}, {index})"


def _number(plane: Plane, pointer: str, index: str, kind: str) -> str:
    """What a stored number stands for."""
    less = f" - {plane.zero}" if plane.zero > 0 else f" + {-plane.zero}" if plane.zero else ""
    if not plane.integer:
        return f"{_READ[plane.number]}({pointer}, {index}){less}"
    stored = _stored(plane, pointer, index) + less
    return f"power_of_two({stored})" if plane.power else stored if kind == "int32_t" else f"(float)({stored})"
