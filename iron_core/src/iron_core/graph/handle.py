"""Handles: tensors of a graph while its body is traced, and the views one may take of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.declare.affine import Affine
from iron_core.declare.formats import Format
from iron_core.declare.indexing import by_axis, filled, listed
from iron_core.declare.pattern import Pattern
from iron_core.errors import BoundsError, ShapeError, TraceError
from iron_core.graph.traced import IndexCheck, Region, Tensor, rebound


@attrs.frozen(eq=False)
class Handle:
    """A tensor that exists only while a graph is traced.

    `pattern` says which elements of `tensor` it is; `index` moves it per call (elements); `bounds` maps an axis
    to the rows of it a call has; `ids` makes it a gather of rows of `tensor`. A handle that is a contiguous run
    known at trace time is what any operator takes; every other view is for Copy.
    """

    tensor: Tensor
    pattern: Pattern
    index: Affine | None = None
    bounds: Mapping[int, Affine] = attrs.field(factory=dict)
    ids: Handle | tuple[int, ...] | None = None
    tracer: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        if self.ids is None:
            return self.pattern.sizes
        rows = self.ids.shape[0] if isinstance(self.ids, Handle) else len(self.ids)
        return (rows, *self.pattern.sizes[1:])

    @property
    def format(self) -> Format:
        return self.tensor.format

    @property
    def dtype(self) -> Any:
        return self.format.spec

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def plain(self) -> bool:
        """Is it a contiguous run known at trace time, which any operator takes?"""
        return self.ids is None and self.index is None and self.pattern.contiguous

    @property
    def whole(self) -> bool:
        """Is it all of its tensor, in order?"""
        return self.plain and self.pattern.offset == 0 and self.size == self.tensor.size

    def region(self) -> Region:
        """A plain handle as what a step reads or writes."""
        return Region(self.tensor, self.pattern.offset, self.shape, tuple(sorted(self.bounds.items())))

    def reshape(self, *shape: Any) -> Handle:
        """The same elements under another shape; one dimension may be -1. Moves no data.

        A bound on the leading axis is rescaled where the new leading axis is a multiple or a divisor of the old.
        """
        dims = listed(shape)
        if any(isinstance(d, Affine) for d in dims):
            raise TraceError("a shape cannot follow a per-call value; bound the rows instead: x[:n].")
        asked, dims = dims, filled(dims, self.size)
        if math.prod(dims) != self.size or any(n < 1 for n in dims):
            raise ShapeError(
                f"reshape of {list(self.shape)} to {list(asked)}; legal: sizes of 1 or more that multiply to {self.size}, one "
                "of which may be -1."
            )
        if not self.plain:
            raise TraceError(f"{self} is a view; reshape what it views, or Copy it first.")
        kept = self.format.kept_axes
        if kept and dims[-kept:] != self.shape[-kept:]:
            what = f"its blocked axis, {self.shape[-1]}" if kept == 1 else f"its matrices, {list(self.shape[-2:])}"
            raise TraceError(f"{self} is {self.format}: a reshape keeps {what}; got {list(dims)}.")
        return attrs.evolve(self, pattern=Pattern.whole(dims, self.pattern.offset), bounds=self._rebound(dims))

    def _rebound(self, dims: tuple[int, ...]) -> dict[int, Affine]:
        if not self.bounds:
            return {}
        moved = rebound(self.shape, self.bounds, dims)
        if moved is None:
            bounds = ", ".join(f"{e!r} on axis {a}" for a, e in sorted(self.bounds.items()))
            raise TraceError(
                f"reshape of {list(self.shape)}, bounded by {bounds}, to {list(dims)}: a bound on the leading axis survives "
                "a reshape where it stays a number of whole rows; no other does."
            )
        return moved

    def transpose(self, *axes: int) -> Handle:
        """The axes in another order (reversed when none are given). Moves no data."""
        order = listed(axes) or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise ShapeError(f"transpose{order} of a tensor of {self.ndim} dimensions; name each axis once.")
        if self.ids is not None:
            raise TraceError("a gather is copied before it is transposed: Copy(table[ids]).")
        if self.format.packed and order != tuple(range(self.ndim)):
            raise TraceError(f"{self} is {self.format}; a block tensor has no transpose. Dequant makes numbers of it.")
        p = self.pattern
        pattern = Pattern(p.offset, tuple(p.sizes[a] for a in order), tuple(p.strides[a] for a in order))
        bounds = {order.index(a): e for a, e in self.bounds.items()}
        return attrs.evolve(self, pattern=pattern, bounds=bounds)

    @property
    def T(self) -> Handle:
        return self.transpose()

    def as_strided(self, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Handle:
        """Of its elements, in order, those at offset + sum(i_k * strides[k]) for every index i under `sizes`, as torch's: rows may
        overlap, or stand askew. Moves no data. BoundsError where it has no such element; TraceError for a view, or of blocks."""
        if not self.plain or self.bounds or self.format.packed:
            raise TraceError(f"{self} is bounded, a view or of blocks; as_strided() takes all of a tensor of numbers.")
        pattern = Pattern(offset, tuple(sizes), tuple(strides))
        low, high = pattern.span
        if low < 0 or high > self.size or pattern.size == 0:
            raise BoundsError(f"as_strided({pattern}) of {self} takes elements {low} to {high - 1}; legal: 0 to {self.size - 1}, and some.")
        return attrs.evolve(self, pattern=pattern.shifted(self.pattern.offset))

    def __getitem__(self, key: Any) -> Handle:
        if self.ids is not None:
            raise TraceError("a gather is copied before it is indexed: Copy(table[ids])[...].")
        keys = key if isinstance(key, tuple) else (key,)
        if keys and isinstance(keys[0], (np.ndarray, list, Handle)):
            return self._gather(keys)
        keys = by_axis(keys, self.ndim)
        if len(keys) > self.ndim:
            raise BoundsError(f"{len(keys)} indices into {self}, which has {self.ndim} dimensions.")
        offset, index = self.pattern.offset, self.index
        sizes: list[int] = []
        strides: list[int] = []
        bounds: dict[int, Affine] = {}
        for axis, (k, n, stride) in enumerate(zip(keys, self.pattern.sizes, self.pattern.strides, strict=True)):
            held = self.bounds.get(axis)
            if isinstance(k, Affine):
                self._check(axis, k, 1, n)
                self._before_bound(axis, k, n)
                moved = k.times(stride)
                index = moved if index is None else self._joined(index, moved)
                continue
            if isinstance(k, (int, np.integer)) and not isinstance(k, bool):
                if k < 0 and held is not None:
                    raise TraceError(f"index {k} counts from the end of {self}, which is bounded by {held!r}: say {held + int(k)!r}.")
                at = int(k) + n if k < 0 else int(k)
                if not 0 <= at < n:
                    raise BoundsError(f"index {k} on axis {axis} of {self}; legal: {-n} to {n - 1}.")
                self._before_bound(axis, at, n)
                offset += at * stride
                continue
            if not isinstance(k, slice):
                raise TraceError(f"{self} is indexed by {type(k).__name__}; legal: ints, slices, per-call values, ids.")
            step = _step(self, k)
            if isinstance(k.start, Affine):
                raise TraceError("a per-call start is an index, as in cache[pos]; a slice bounds: x[:n].")
            if isinstance(k.stop, Affine):
                if k.start not in (None, 0):
                    raise TraceError(f"a per-call bound starts at 0: x[:{k.stop!r}], not x[{k.start!r}:{k.stop!r}].")
                if step != 1:
                    raise TraceError(f"a per-call bound counts what a step leaves: x[::{step}][:{k.stop!r}], not x[:{k.stop!r}:{step}].")
                if held is not None and held.key != k.stop.key:
                    raise TraceError(f"axis {axis} of {self} is bounded by {held!r} already; take it whole.")
                self._check(axis, k.stop, 0, n)
                bounds[len(sizes)] = k.stop
            else:
                start, stop, _ = k.indices(n)
                if held is not None and (start >= step or stop != n):
                    raise TraceError(f"axis {axis} of {self} is bounded per call; take it whole, index it, or step through it: x[1::2].")
                if held is not None:
                    bounds[len(sizes)] = held if step == 1 else held.stepped(start, step)
                offset += start * stride
                n = len(range(start, stop, step))
                if n == 0:
                    raise BoundsError(f"slice {k.start}:{k.stop} on axis {axis} of {self} is empty.")
                stride *= step
            sizes.append(n)
            strides.append(stride)
        self._whole_blocks(keys, offset, sizes)
        return attrs.evolve(
            self, pattern=Pattern(offset, tuple(sizes), tuple(strides)), index=index, bounds=bounds
        )

    def _gather(self, keys: tuple[Any, ...]) -> Handle:
        ids, rest = keys[0], keys[1:]
        if not all(_everything(k) for k in rest) or self.ndim < 2 or self.bounds or self.index is not None:
            raise TraceError(f"a gather takes whole rows of an unbounded table: table[ids]; got {len(keys)} indices into {self}.")
        if self.format.kept_axes >= self.ndim:
            raise TraceError(f"{self} is {self.format}, whose rows do not stand by themselves; a gather needs rows that do.")
        if isinstance(ids, Handle):
            if ids.ndim != 1 or getattr(ids.dtype, "kind", "") not in "iu" or not ids.plain:
                raise TraceError(f"the ids of a gather are one dimension of whole integers; got {ids}.")
            if not self.whole or self.tensor.role not in ("weight", "state"):
                raise TraceError(f"a per-call gather reads a whole weight or state; {self} is neither.")
            bounds = {0: ids.bounds[0]} if 0 in ids.bounds else {}
            return attrs.evolve(self, ids=ids, bounds=bounds)
        fixed = np.asarray(ids)
        if fixed.ndim != 1 or fixed.dtype.kind not in "iu":
            raise TraceError(f"the ids of a gather are one dimension of integers; got {fixed.dtype} {fixed.shape}.")
        rows = self.shape[0]
        bad = fixed[(fixed < -rows) | (fixed >= rows)]
        if bad.size:
            raise BoundsError(f"id {bad[0]} of a gather from {self}; legal: {-rows} to {rows - 1}.")
        return attrs.evolve(self, ids=tuple(int(i) % rows for i in fixed))

    def _whole_blocks(self, keys: tuple[Any, ...], offset: int, sizes: list[int]) -> None:
        kept = self.format.kept_axes
        if not kept:
            return
        rows, columns = self.format.unit(self.shape)
        fixed = all(isinstance(k, slice) and not isinstance(k.stop, Affine) and k.step in (None, 1) for k in keys[-kept:])
        if kept == 1 and not (fixed and offset % columns == 0 and sizes[-1] % columns == 0):
            raise TraceError(f"{self} is {self.format}: its last axis is cut only at whole blocks of {columns}.")
        if kept == 2 and not (fixed and sizes[-1] == columns and sizes[-2] % rows == 0 and offset % (rows * columns) == 0):
            by_rows = f"its rows are cut only at whole blocks of {rows}, its columns not at all"
            raise TraceError(f"{self} is {self.format}: {'its matrices come whole' if rows == self.shape[-2] else by_rows}.")

    def _check(self, axis: int, expression: Affine, extent: int, limit: int) -> None:
        what = f"{'index' if extent else 'bound'} {expression!r} on axis {axis} of {self.tensor.name} {list(self.shape)}"
        self.tracer.check(IndexCheck(what, expression, extent, limit))

    def _before_bound(self, axis: int, at: Any, n: int) -> None:
        """An index into a bounded axis is one of the rows a call has. Two values cannot be compared; they meet the size only."""
        bound = self.bounds.get(axis)
        if bound is None or (isinstance(at, Affine) and not (at.linear and bound.linear and at.value == bound.value)):
            return
        rest = bound - at - 1
        if isinstance(rest, Affine):
            what = f"rows of {self.tensor.name} {list(self.shape)}, bounded by {bound!r}, behind index {at!r}:"
            self.tracer.check(IndexCheck(what, rest, 0, n))
        elif rest < 0:
            raise BoundsError(f"index {at!r} on axis {axis} of {self}, which is bounded by {bound!r}.")

    def _joined(self, index: Affine, moved: Affine) -> Affine:
        if moved.value != index.value:
            raise TraceError(f"{self}: two axes follow different per-call values; one view follows one value.")
        joined = index + moved
        if not isinstance(joined, Affine):
            raise TraceError(f"{self}: the two per-call indices cancel; index by a number.")
        return joined

    # What a tensor cannot do while it is traced. `==` would otherwise be False and take a branch in silence.

    def _branch(self, *_: Any) -> Any:
        raise TraceError(f"a graph body branches on or compares the tensor {self}. Its numbers are unknown while tracing.")

    def _arithmetic(self, *_: Any) -> Any:
        some = "ElementwiseAdd(a, b), ElementwiseMul(a, b), Scale(a, factor=2.0) or GEMM(a, b)"
        raise TraceError(f"{self} has no arithmetic; call an operator on it, such as {some}.")

    def _number(self, *_: Any) -> Any:
        raise TraceError(f"{self} is used as a number, and a tensor's numbers are unknown while tracing.")

    def _iterate(self, *_: Any) -> Any:
        raise TraceError(f"{self} has no elements while tracing; index it with ints; `.shape[0]` counts its rows.")

    def _assign(self, *_: Any) -> Any:
        raise TraceError(f"{self} cannot be assigned to; Copy(source, target[...]) writes into a state.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TraceError(
            f"numpy cannot read {self}: its numbers are unknown while tracing. In a body, call operators and graphs on it; "
            "a compiled graph and a reference run take arrays."
        )

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _branch
    __hash__ = object.__hash__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __matmul__ = __rmatmul__ = __pow__ = __neg__ = __abs__ = _arithmetic
    __int__ = __float__ = __index__ = _number
    __iter__ = __len__ = __contains__ = _iterate
    __setitem__ = _assign

    def __repr__(self) -> str:
        return f"{self.tensor.name}{list(self.shape)}"


def _step(handle: Handle, key: slice) -> int:
    """The step of a slice, 1 where none is given."""
    if key.step is None:
        return 1
    if not isinstance(key.step, (int, np.integer)) or isinstance(key.step, bool) or key.step < 1:
        raise TraceError(f"{handle} is sliced with step {key.step!r}; legal: a whole number of 1 or more.")
    return int(key.step)


def _everything(key: Any) -> bool:
    return key is Ellipsis or (isinstance(key, slice) and key.start is None and key.stop is None and key.step is None)
