"""`View`: a packed format as kernels read it: a C++ struct, written from the format's planes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs

from iron_core.declare.formats import Format, Plane
from iron_core.errors import PluginError
from iron_core.lowering import Lowering
from iron_core.lowering.answer import No
from iron_core.plugins.registry import labelled, registry
from iron_host.build import Header, Unit


@attrs.frozen
class View:
    """What a kernel's template is given for a format.

    name: the struct's, in namespace iron or with its own. header: what kernels that take it stand in: "blocks.h" for the
    blocks that it multiplies fastest, "packed.h" for any other, or a pack's own header, which includes packed.h and has the
    struct. source: the struct's text where no header has it.
    """

    name: str
    header: str | Header = "packed.h"
    source: str = ""

    @property
    def blocks(self) -> bool:
        """Are they blocks that blocks.h multiplies?"""
        return self.header == "blocks.h"

    def unit(self, kernel: str, *arguments: str) -> Unit:
        """The kernel template of blocks.h or packed.h for this format and further arguments."""
        symbol = "iron_" + re.sub(r"\W+", "_", "_".join((kernel, self.name, *arguments)))
        return Unit(self.header, f"{kernel}<{', '.join((self.name, *arguments))}>", symbol, self.source)


class FormatLowering(Lowering):
    """How the host reads a format whose planes do not say enough. Register it in `iron.lowerings.v1` as `host.<format's name>`."""

    backend = "host"

    def view(self, format: Format) -> View:
        """The struct that reads a row of it, in a header of the pack's own."""
        raise TypeError(f"{type(self).__name__} defines no view().")


def view_of(format: Format) -> View | None:
    """The view of a packed format: by its planes, or as the lowering registered for it says; None where there is neither."""
    if format.planes:
        return _generated(format)
    found: Any = registry().find("iron.lowerings.v1", f"host.{format.name}")
    if found is None:
        return None
    if not issubclass(found, FormatLowering):
        raise PluginError(f"host.{format.name}: the lowering of a format is a class deriving from iron_host.lowering.FormatLowering.")
    with labelled(found, f"to say how the host reads {format.name}"):
        return found().view(format)  # type: ignore[no-any-return]


def no_view(field: str, format: Format) -> No:
    """Why the host has no kernel that reads a format."""
    return No(f"{field}={format.name}: its planes do not say how it is read, and nobody registers a lowering host.{format.name}")


@cache
def _generated(format: Format) -> View:
    name = re.sub(r"\W", "_", format.name).upper()
    fields = _block_fields(format)
    if fields is not None:
        listed = ", ".join(f"{field} = {value}" for field, value in fields.items())
        return View(name, "blocks.h", f"namespace iron {{\nstruct {name} {{ enum {{ {listed} }}; }};\n}}\n")
    return View(name, "packed.h", f"namespace iron {{\n{_struct(name, format)}}}\n")


def _block_fields(format: Format) -> dict[str, int] | None:
    """What blocks.h has to know of a format; None where it is not of its kind.

    Its blocks are 32 numbers of a row: a float16 scale, perhaps a float16 minimum, then signed bytes, or unsigned nibbles of
    which byte i has number i in its low half and i + 16 in its high one.
    """
    *heads, values = format.planes
    group = (1, 32)
    if not format.by_rows or format.block != group or values.role != "values":
        return None
    if [plane.role for plane in heads] not in (["scales"], ["scales", "minima"]):
        return None
    if any(plane.number != "float16" or plane.group != group or plane.power or plane.zero for plane in heads):
        return None
    nibbles = values.number == "uint4" and values.columns == (16,) and values.order == (0, 2, 1) and not values.rows
    signed = values.number == "int8" and not (values.columns or values.rows or values.zero)
    if not (nibbles or signed):
        return None
    return {"bytes": format.block_bytes, "head": 2 * len(heads), "bits": values.bits, "zero": values.zero, "minimum": len(heads) - 1}


# -- a struct for any planes -------------------------------------------------------------------------


def _struct(name: str, format: Format) -> str:
    """`bytes` of a matrix and `row`, which reads one of its rows, a step of numbers that share what they share at a time."""
    rows, columns = format.block
    blocks = any(not plane.apart for plane in format.planes)
    across = f"((K + {columns - 1}) / {columns})" if format.padded else f"(K / {columns})"
    total = [f"M / {rows} * {across} * {format.block_bytes}"] if blocks else []
    apart, inside, at = [], [], 0
    for i, plane in enumerate(format.planes):
        if plane.apart:
            apart.append(f"    const uint8_t* p{i} = {' + '.join(['w', *total])};\n")
            total.append(_bytes(plane))
        else:
            inside.append(f"      const uint8_t* p{i} = block + {at};\n")
            at += plane.nbytes(format.block)
    if blocks:
        block = f"w + (m / {rows} * {across} + k / {columns}) * {format.block_bytes}"
        inside.insert(0, f"      const uint8_t* block = {block};\n")
    steps = [plane.group[1] for plane in format.planes if plane.role != "values" and plane.group[1]] + [columns] * blocks
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
