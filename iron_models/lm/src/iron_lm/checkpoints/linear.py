"""`Linear`: what a packer stores of a matrix; and its groups and words, as all packers have them."""

from __future__ import annotations

import attrs
import numpy as np

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.entries import Entries

#: What stands beside a `qweight`.
SUFFIXES = ("qweight", "qzeros", "scales", "g_idx")
_SCALES = ("float16", "bfloat16", "float32")


@attrs.frozen(eq=False)
class Linear:
    """A matrix by its name, and the arrays that it is stored as by theirs. unread: why one of them could not be read, if so."""

    name: str
    parts: dict[str, np.ndarray]
    unread: str = ""

    @property
    def weight(self) -> str:
        """What the matrix is called: a module's weight, or, of several in one tensor, as that is."""
        words = self.parts.get("qweight")
        return self.name if words is not None and words.ndim == 3 else f"{self.name}.weight"

    def part(self, suffix: str, axes: tuple[int, ...], integers: bool = True) -> np.ndarray:
        """An array of so many axes. CheckpointError where it is missing, or of other numbers."""
        if suffix not in self.parts:
            raise CheckpointError(f"has no {suffix} beside it.")
        found = self.parts[suffix]
        if (found.dtype != np.int32) if integers else (found.dtype.name not in _SCALES):
            raise CheckpointError(f"has {suffix} of {found.dtype}. Legal: {'int32' if integers else ', '.join(_SCALES)}.")
        if found.ndim not in axes or 0 in found.shape:
            raise CheckpointError(f"has {suffix} of shape {list(found.shape)}. Legal: {' or '.join(map(str, axes))} axes, none empty.")
        return found

    def shaped(self, suffix: str, shape: tuple[int, ...], integers: bool = True) -> np.ndarray:
        """An array of this shape; CheckpointError where it has another."""
        found = self.part(suffix, (len(shape),), integers)
        if found.shape != shape:
            raise CheckpointError(f"has {suffix} of shape {list(found.shape)}. Legal: {list(shape)}.")
        return found


def scattering(order: np.ndarray, group: int, groups: int) -> np.ndarray | None:
    """The group of each column (..., K), int32, where some lie otherwise than one group behind another; None where none does.
    CheckpointError for groups that there are not."""
    beyond = order[(order < 0) | (order >= groups)]
    if beyond.size:
        raise CheckpointError(f"has {beyond[0]} in its g_idx. Legal: 0 to {groups - 1}, its groups.")
    usual = np.arange(order.shape[-1], dtype=np.int32) // group
    return None if np.array_equal(order, np.broadcast_to(usual, order.shape)) else order


def groups_of(columns: int, size: int) -> tuple[int, int]:
    """Numbers of a group, and groups of a row of so many columns, -1 being one of all. CheckpointError for what is not run."""
    group = columns if size == -1 else size
    if columns % group:
        raise CheckpointError(f"has rows of {columns}, which are not whole groups of {group}. Legal: multiples of it.")
    if group % 32:
        raise CheckpointError(f"has groups of {group}. Legal: a multiple of 32.")
    return group, columns // group


def group_size_of(entries: Entries, key: str) -> int:
    """Numbers that share a scale; -1: all of a row."""
    return -1 if entries.entries.get(key) == -1 else entries.whole(key)


def group_words(size: int) -> str:
    """Groups, for people."""
    return "rows for groups" if size == -1 else f"groups of {size}"


def nibbles(words: np.ndarray) -> np.ndarray:
    """uint8 (..., 8 n) of int32 (..., n), each word's eight from the lowest bits on."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    return np.stack([raw & 15, raw >> 4], -1).reshape(*words.shape[:-1], -1)
