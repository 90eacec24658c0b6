"""What weights take of memory, and how that is said."""

from __future__ import annotations

from typing import Any

from iron_core import Dense
from iron_core.declare.formats import as_dtype
from iron_lm.checkpoints.rearranged import Rearranged
from iron_lm.checkpoints.widening import Merged, runs_as, stored_format
from iron_lm.process import in_words


def merged_bytes(weights: dict[str, Any]) -> int:
    """Bytes of the weights whose parts lie in several files."""
    return sum(stored_format(array).nbytes(array.shape) for array in weights.values() if isinstance(array, Merged))


def rearranged_bytes(weights: dict[str, Any]) -> int:
    """Bytes of the weights that are packed in another order than they run in."""
    return sum(array.nbytes for array in weights.values() if isinstance(array, Rearranged) and array.format.packed)


def scattered_bytes(weights: dict[str, Any]) -> int:
    """Bytes, as they run, of the weights that are packed in groups which are scattered over their rows."""
    return sum(array.nbytes for array in weights.values() if is_scattered(array))


def is_scattered(array: Any) -> bool:
    """Is it of groups that are scattered over its rows, and so read as its numbers?"""
    return isinstance(array, Rearranged) and not array.format.packed


def most(values: list[Any]) -> Any:
    """The value there is most of, or None."""
    return max(values, key=values.count) if values else None


def made_bytes(weights: dict[str, Any], dtype: str | None) -> int:
    """Bytes of the weights that do not run as they lie in the file: in another format, from several files, or turned."""
    wide = None if dtype is None else Dense(as_dtype(dtype))

    def nbytes(array: Any) -> int:
        stored = stored_format(array)
        target = wide or runs_as(stored)
        as_it_lies = not isinstance(array, Merged | Rearranged) and (array.data if stored.packed else array).flags.c_contiguous
        return 0 if target == stored and as_it_lies else target.nbytes(array.shape)

    return sum(map(nbytes, weights.values()))


def kept_line(formats: list[tuple[Any, tuple[int, ...]]], dtype: str | None) -> str:
    """How weights of these formats and shapes are kept, for people; matrices decide, vectors are a trifle."""
    matrices = [(format, shape) for format, shape in formats if len(shape) > 1]
    if dtype is not None:
        names = sorted({format.name for format, _ in matrices if format.packed}) or [most([format for format, _ in matrices]).name]
        return f"{dtype} as in the file" if names == [dtype] else f"{dtype} from {', '.join(names)}"
    changed = {format.name: runs_as(format).name for format, _ in matrices if runs_as(format) != format}
    kept = [format for format, _ in matrices if runs_as(format) == format]
    names = sorted({format.name for format in kept if format.packed}) or [most(kept).name] if kept else []
    words = [f"{', '.join(names)} as in the file"] if names else []
    for target in sorted(set(changed.values())):
        those = ", ".join(name for name, to in sorted(changed.items()) if to == target)
        size = sum(runs_as(f).nbytes(shape) for f, shape in matrices if changed.get(f.name) == target)
        words.append(f"{those} {'widened to' if target == 'float32' else 'as'} {target} ({in_words(size)} of memory)")
    return "; ".join(words)
