"""Two access patterns walked together as one loop nest: what a copy with views on both sides comes down to."""

from __future__ import annotations

import attrs

from iron_core.declare.pattern import Pattern


@attrs.define
class Axis:
    """One loop: its trips and how far each side steps. `bound` says whose per-call count it follows: "src" or "dst"."""

    size: int
    source: int
    target: int
    bound: str | None = None


@attrs.define
class _Run:
    size: int
    stride: int
    bounded: bool
    whole: bool = True


def nest(source: Pattern, target: Pattern, src_axis: int | None = None, dst_axis: int | None = None) -> list[Axis] | None:
    """Loops, outermost first, that visit the k-th element of both patterns together; None where no nest does.

    `src_axis` and `dst_axis` are the axes whose trips a call bounds. None also where a bounded axis of one side
    is cut up by the other.
    """
    left, right = _runs(source, src_axis), _runs(target, dst_axis)
    axes: list[Axis] = []
    while left or right:
        a = left[-1] if left else _Run(1, 0, False)
        b = right[-1] if right else _Run(1, 0, False)
        size = min(a.size, b.size)
        if not size or a.size % size or b.size % size or (size == 1 and not (a.bounded or b.bounded)):
            return None
        bound = None
        if (a.bounded and a.size == size) or (b.bounded and b.size == size):
            bound = "src" if a.bounded and a.whole and a.size == size else "dst" if b.bounded and b.whole and b.size == size else ""
            if bound == "":
                return None
        axes.append(Axis(size, a.stride, b.stride, bound))
        for runs, run in ((left, a), (right, b)):
            if run.size == size:
                if runs:
                    runs.pop()
            elif size > 1:
                run.size, run.stride, run.whole = run.size // size, run.stride * size, False
    if sum(axis.bound is not None for axis in axes) > 1:
        return None
    axes.reverse()
    return _merged(axes)


def _runs(pattern: Pattern, bounded: int | None) -> list[_Run]:
    """The pattern's axes, those of one trip left out and neighbours that run on merged."""
    runs: list[_Run] = []
    for axis, (size, stride) in enumerate(zip(pattern.sizes, pattern.strides, strict=True)):
        here = axis == bounded
        if size == 1 and not here:
            continue
        last = runs[-1] if runs else None
        if last is not None and not here and not last.bounded and last.stride == stride * size:
            last.size, last.stride = last.size * size, stride
        else:
            runs.append(_Run(size, stride, here))
    return runs


def _merged(axes: list[Axis]) -> list[Axis]:
    """Neighbouring loops that both sides run through without a gap, as one."""
    out: list[Axis] = []
    for axis in axes:
        last = out[-1] if out else None
        joins = last is not None and last.bound is None and axis.bound is None
        if joins and last.source == axis.source * axis.size and last.target == axis.target * axis.size:  # type: ignore[union-attr]
            out[-1] = Axis(last.size * axis.size, axis.source, axis.target)  # type: ignore[union-attr]
        elif axis.size > 1 or axis.bound:
            out.append(axis)
    return out
