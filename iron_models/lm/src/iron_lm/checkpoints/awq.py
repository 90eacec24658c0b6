"""AWQ's matrices, as AutoAWQ's "gemm" lays them out.

`qweight` is int32 (K, N / 8), a word eight outputs of one input, in the order 0, 2, 4, 6, 1, 3, 5, 7 from its lowest bits on; `qzeros`
(groups, N / 8) in the same order; `scales` (groups, N). A number is scale * (q - zero).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np

from iron_core import PackedArray
from iron_core.declare.formats import grouped
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.entries import Entries, shown
from iron_lm.checkpoints.linear import Linear, group_size_of, group_words, groups_of, nibbles
from iron_lm.checkpoints.rearranged import Rearranged, in_groups

#: The output of each nibble of a word.
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@attrs.frozen
class Reader:
    """Reads matrices of one checkpoint."""

    group_size: int

    @property
    def described(self) -> str:
        """What is read, for people."""
        return f"AWQ, 4 bits, {group_words(self.group_size)}"

    def tensor(self, linear: Linear) -> tuple[tuple[int, ...], Any, Rearranged]:
        """Shape, format and array of a matrix. CheckpointError for arrays that do not fit together."""
        words = linear.part("qweight", (2, 3))
        *lead, depth, across = words.shape
        shape = (*lead, 8 * across, depth)
        group, groups = groups_of(depth, self.group_size)
        scales = linear.shaped("scales", (*lead, groups, 8 * across), integers=False)
        zeros = linear.shaped("qzeros", (*lead, groups, across))
        if depth % 2:
            raise CheckpointError(f"has {depth} rows. Legal: an even number of them.")
        format = grouped(4, group, scales.dtype, zeros=True)
        made = partial(_packed, linear.name, format, shape, words, zeros, scales)
        return shape, format, Rearranged(shape, format, (words, zeros, scales), "awq", made)


def reader(entries: Entries, linears: list[Linear], zeros: str | None) -> Reader:
    """The reader of matrices of which a packer says this. CheckpointError for a layout or for bits that are not read."""
    bits = entries.whole("bits" if entries.has("bits") else "w_bit")
    if bits != 4:
        raise CheckpointError(f"{entries.where}: {bits} bits. Legal: 4.")
    version = entries.entries.get("version", "gemm")
    if not isinstance(version, str) or version.lower() != "gemm":
        raise CheckpointError(f"{entries.where}: version is {shown(version)}, whose words have another order. Legal: gemm.")
    if not entries.flag("zero_point", True):
        raise CheckpointError(f"{entries.where}: zero_point is false. Legal: true.")
    return Reader(group_size_of(entries, "group_size" if entries.has("group_size") else "q_group_size"))


def _ordered(words: np.ndarray) -> np.ndarray:
    """The eight numbers of each word in the order of the outputs."""
    found = nibbles(words).reshape(*words.shape, 8)
    out = np.empty_like(found)
    out[..., ORDER] = found
    return out.reshape(*words.shape[:-1], -1)


def _packed(
    name: str, format: Any, shape: tuple[int, ...], words: np.ndarray, zeros: np.ndarray, scales: np.ndarray
) -> PackedArray:
    matrices = words.reshape(-1, *words.shape[-2:])

    def rows(m: int, part: slice) -> np.ndarray:
        """A byte is two inputs of an output; in a word they are one above the other."""
        raw = np.ascontiguousarray(matrices[m, :, part.start // 8 : part.stop // 8]).view(np.uint8)
        raw = raw.reshape(len(raw), -1, 4)
        even, odd = raw[0::2], raw[1::2]
        out = np.empty((len(even), raw.shape[1], 8), np.uint8)
        out[..., ORDER[0::2]] = even & 15 | odd << 4
        out[..., ORDER[1::2]] = even >> 4 | odd & 0xF0
        return np.ascontiguousarray(out.reshape(len(out), -1).T)

    found = _ordered(zeros).swapaxes(-1, -2)
    return in_groups(name, format, shape, scales.swapaxes(-1, -2), found, rows, unit=8)
