"""GPTQ's matrices, as AutoGPTQ and GPTQModel lay them out.

`qweight` is int32 (K * bits / 32, N), a word several inputs of one output, the first in its lowest bits; `qzeros` (groups, N * bits / 32),
a word zero points of several outputs; `scales` (groups, N); `g_idx` (K,), the group of each input. A number is scale * (q - zero).

What is stored of a zero point is one less than it, with 0 stored as the largest ("v1"), or the zero point ("v2", gptq_v2). Files do not
always say which, and some say what they do not do: those of a symmetric packer, whose zero points are all in the middle, show it.

With activation order (`desc_act`) the inputs of a group are scattered over a row. No product takes such groups, so the matrix is read as
its numbers, in float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np

from iron_core import Dense
from iron_core.declare.formats import grouped
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.entries import Entries, shown
from iron_lm.checkpoints.linear import Linear, group_size_of, group_words, groups_of, nibbles, scattering
from iron_lm.checkpoints.rearranged import Rearranged, in_groups, scattered

#: How zero points are stored: less one, or as they are.
CONVENTIONS = ("v1", "v2")
_IN_WORDS = {"v1": "stored less one", "v2": "stored as they are"}
_FORMATS = {"gptq": "v1", "gptq_v2": "v2"}
#: Matrices, and numbers of each, that are looked at.
_LOOKED_AT, _NUMBERS = 8, 1 << 16
#: How far from 0 the mean of a matrix's integers less zero points may be, in units of its scale, for these to be the zero points.
_CENTRED = 0.35


@attrs.frozen
class Reader:
    """Reads matrices of one checkpoint. symmetric: are all zero points in the middle? reordered: may inputs be in activation order?"""

    bits: int
    group_size: int
    convention: str
    why: str
    symmetric: bool
    reordered: bool

    @property
    def described(self) -> str:
        """What is read, for people."""
        how = _IN_WORDS[self.convention]
        return f"GPTQ, {self.bits} bits, {group_words(self.group_size)}, zero points {how} ({self.convention}: {self.why})"

    def tensor(self, linear: Linear) -> tuple[tuple[int, ...], Any, Rearranged]:
        """Shape, format and array of a matrix. CheckpointError for arrays that do not fit together."""
        words, per = linear.part("qweight", (2, 3)), 32 // self.bits
        *lead, deep, high = words.shape
        depth = per * deep
        shape = (*lead, high, depth)
        group, groups = groups_of(depth, self.group_size)
        if high % per:
            raise CheckpointError(f"has {high} outputs. Legal: a multiple of {per}.")
        scales = linear.shaped("scales", (*lead, groups, high), integers=False)
        zeros = linear.shaped("qzeros", (*lead, groups, high // per))
        order = None
        if "g_idx" in linear.parts or (self.reordered and groups > 1):
            order = scattering(linear.shaped("g_idx", (*lead, depth)), group, groups)
        format = grouped(self.bits, group, scales.dtype, zeros=not self.symmetric)
        made = partial(_made, self, linear.name, format, shape, words, zeros, scales, order)
        parts, how = (words, zeros, scales), f"gptq {self.convention}"
        if order is None:
            return shape, format, Rearranged(shape, format, parts, how, made)
        wide = Dense(np.float32)
        return shape, wide, Rearranged(shape, wide, (*parts, order), f"{how} {format}", made)

    def zeros(self, stored: np.ndarray) -> np.ndarray:
        """Zero points, uint8, of what is stored of them."""
        return stored if self.convention == "v2" else (stored + np.uint8(1)) & np.uint8((1 << self.bits) - 1)


def reader(entries: Entries, linears: list[Linear], said: str | None) -> Reader:
    """The reader of matrices of which a packer says this. CheckpointError for a layout or for bits that are not read, and where nothing
    tells how zero points are stored. said: how they are."""
    bits = entries.whole("bits")
    if bits not in (4, 8):
        raise CheckpointError(f"{entries.where}: {bits} bits. Legal: 4, 8.")
    stored_in = entries.entries.get("pack_dtype", "int32")
    if stored_in != "int32":
        raise CheckpointError(f"{entries.where}: pack_dtype is {shown(stored_in)}. Legal: int32.")
    named = entries.entries.get("checkpoint_format")
    if named is not None and (not isinstance(named, str) or named not in _FORMATS):
        raise CheckpointError(f"{entries.where}: checkpoint_format is {shown(named)}. Legal: {', '.join(_FORMATS)}.")
    dynamic = entries.entries.get("dynamic") or {}
    if not isinstance(dynamic, dict) or not all(key.startswith("-:") for key in dynamic):  # "-:" names those that are not packed
        raise CheckpointError(f"{entries.where}: dynamic gives matrices bits and groups of their own. Legal: one for all.")
    size = group_size_of(entries, "group_size")
    whole = [linear for linear in linears if all(_is_table(linear.parts.get(name)) for name in ("qweight", "qzeros"))]
    if not whole:
        raise CheckpointError(f"no matrix has qweight and qzeros of int32, as {linears[0].name} should.")
    some = [whole[i] for i in np.unique(np.linspace(0, len(whole) - 1, min(_LOOKED_AT, len(whole))).astype(int))]
    found = [_stored(linear, bits) for linear in some]
    constant, middle = {int(one) for zeros in found for one in np.unique(zeros)}, 1 << (bits - 1)
    symmetric = entries.entries.get("sym") is not False and constant in ({middle}, {middle - 1})
    convention, why = _convention(_FORMATS.get(named or ""), said, constant if symmetric else None, bits, some, found)
    # Of a file that is symmetric in one convention, the other makes the zero points others.
    in_middle = symmetric and (convention == "v2") == (constant == {middle})
    return Reader(bits, size, convention, why, in_middle, entries.flag("desc_act"))


def _convention(
    named: str | None, said: str | None, constant: set[int] | None, bits: int, some: list[Linear], found: list[np.ndarray]
) -> tuple[str, str]:
    """How zero points are stored, and how that is known: by who opens the file, by zero points that are all in the middle, by what the
    packer says, by the numbers. constant: all that is stored, of a symmetric file."""
    if said is not None:
        return said, "as asked for"
    if constant is not None:
        (stored,) = constant
        shows = "v2" if stored == 1 << (bits - 1) else "v1"
        against = f", though checkpoint_format says {named}" if named not in (None, shows) else ""
        return shows, f"all looked at are {stored}, as a symmetric packer's are{against}"
    means = {version: [_mean(linear, zeros, version, bits) for linear, zeros in zip(some, found, strict=True)] for version in CONVENTIONS}
    centred = [version for version in CONVENTIONS if all(abs(mean) < _CENTRED for mean in means[version])]
    evidence = "mean integer less zero point: " + ", ".join(f"{v} {max(m, key=abs):.2f}" for v, m in means.items())
    told = centred[0] if len(centred) == 1 else None
    fix = "say --gptq-zeros v1 (less one) or v2"
    if named is None and told is None:
        raise CheckpointError(f"nothing tells how zero points are stored: {fix}; {evidence}.")
    if named is not None and told is not None and named != told:
        raise CheckpointError(f"checkpoint_format says {named}, and the numbers do not: {fix}; {evidence}.")
    return (named, "as checkpoint_format says") if named is not None else (str(told), f"by the numbers; {evidence}")


def _is_table(part: np.ndarray | None) -> bool:
    return part is not None and part.dtype == np.int32 and part.ndim in (2, 3) and part.size > 0


def _stored(linear: Linear, bits: int) -> np.ndarray:
    """What is stored of a matrix's zero points, uint8."""
    words = linear.parts["qzeros"]
    return nibbles(words) if bits == 4 else np.ascontiguousarray(words).view(np.uint8)


def _mean(linear: Linear, zeros: np.ndarray, version: str, bits: int) -> float:
    """The mean of integers less zero points, of a matrix's first groups."""
    words = linear.parts["qweight"]
    deep, high = words.shape[-2:]
    words, zeros = words.reshape(-1, deep, high)[0], zeros.reshape(-1, *zeros.shape[-2:])[0]
    groups = len(zeros)
    most = min(groups, max(1, _NUMBERS // max(1, deep * 32 // bits * high // groups)))
    some = words[: max(1, deep * most // groups)]
    integers = nibbles(some) if bits == 4 else np.ascontiguousarray(some).view(np.uint8)
    order = linear.parts.get("g_idx", np.zeros(0)).reshape(-1)[: len(some) * 32 // bits]
    fits = order.dtype == np.int32 and len(order) == len(some) * 32 // bits and order.min() >= 0 and order.max() < groups
    found = zeros[order] if fits else zeros[:most]
    points = found if version == "v2" else (found + np.uint8(1)) & np.uint8((1 << bits) - 1)
    scale = 1 << (bits - 4)  # of 8 bits a difference of one is not seen, and 1/16 of it never told
    return float(integers.mean() - points.mean()) / scale


def _made(
    reader: Reader,
    name: str,
    format: Any,
    shape: tuple[int, ...],
    words: np.ndarray,
    stored: np.ndarray,
    scales: np.ndarray,
    order: np.ndarray | None,
) -> Any:
    matrices = words.reshape(-1, *words.shape[-2:])
    flip = np.uint8(0x80 if reader.bits == 8 else 0)  # bytes less 128 are signed ones
    wide = nibbles(stored) if reader.bits == 4 else np.ascontiguousarray(stored).view(np.uint8)
    zeros: Any = reader.zeros(wide.reshape(*stored.shape[:-1], shape[-2])).swapaxes(-1, -2)
    if reader.symmetric:
        if (zeros != 1 << (reader.bits - 1)).any():
            raise CheckpointError(f"{name}.qzeros are not all {1 << (reader.bits - 1)}, as those of a symmetric packer's other matrices.")
        zeros = None
    elif flip:
        zeros = zeros.astype(np.int16) - 128

    def rows(m: int, part: slice) -> np.ndarray:
        """A word's inputs are an output's next ones: words turned are rows."""
        return np.ascontiguousarray(matrices[m, :, part].T).view(np.uint8) ^ flip

    across = scales.swapaxes(-1, -2)
    if order is None:
        return in_groups(name, format, shape, across, zeros, rows)
    return scattered(name, format, shape, across, zeros, rows, order)
