"""From an access pattern to buffer descriptors: what a tile's DMA can walk, and how a pattern is cut to fit.

A descriptor has four slots, outermost first. On a shim the first is the iteration: the DMA executes the other
three again for every index of it, so it is the only slot that may stand still (stride 0), and the length word
counts one execution. Sizes, strides and offsets are elements; the hardware counts 4-byte words.

    plan(Pattern(0, (8, 4096), (8192, 1)), BdLimits.of(device("npu2").shim, 4))   # one: 1 x 8 x 8 x 512
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import attrs
import numpy as np

from iron_core.declare.pattern import Pattern
from iron_core.devices import ITERATIONS, LENGTH_UNIT, REPEATS, WORD, TileKind
from iron_core.errors import Unresolvable

# mlir-aie refuses a larger size in a descriptor that is not part of a sequence, though the field is wider.
_COMPILED_SIZE = 512

Dim = tuple[int, int]  # of a walk: size and stride, in elements
_UNIT: Dim = (1, 0)
_ONE = "a transfer set per call must be one descriptor"


@attrs.frozen
class Descriptor:
    """One walk: `offset`, and four sizes and strides in elements, the iteration first.

    All elements consecutive is the linear form, sizes (1, 1, 1, n) and strides (0, 0, 0, 1).
    """

    offset: int
    sizes: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]

    @classmethod
    def of(cls, offset: int, dims: tuple[Dim, ...]) -> Descriptor:
        """Of up to four dimensions; missing outer ones are 1. What never steps gets stride 0, innermost 1."""
        slots = [(n, stride) if n > 1 else (1, int(k == 0)) for k, (n, stride) in enumerate(reversed(dims))]
        sizes, strides = zip(*reversed(slots + [_UNIT] * (4 - len(dims))), strict=True)
        return cls(offset, sizes, strides)

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    def pattern(self) -> Pattern:
        return Pattern(self.offset, self.sizes, self.strides)

    def shifted(self, by: int) -> Descriptor:
        return attrs.evolve(self, offset=self.offset + by)

    def addresses(self, length: int | None = None) -> np.ndarray:
        """The elements in the order walked, int64. `length` is a shim's length word: elements per execution."""
        at = np.full(1, self.offset, np.int64)
        for n, stride in zip(self.sizes, self.strides, strict=True):
            at = (at[:, None] + np.arange(n, dtype=np.int64) * stride).ravel()
        return at if length is None else at.reshape(self.sizes[0], -1)[:, :length].ravel()


@attrs.frozen
class BdLimits:
    """What one tile's descriptors hold for elements of `itemsize` bytes.

    `sizes` is the largest per slot in elements (None: any), `step` the largest stride and `length` the longest
    execution in 4-byte words, `repeats` how often a stride-0 iteration may execute (0: no iteration).
    """

    itemsize: int
    names: tuple[str, str, str, str]
    sizes: tuple[int | None, ...]
    step: int
    length: int
    repeats: int
    descriptors: int

    @classmethod
    def of(cls, tile: TileKind, itemsize: int) -> BdLimits:
        """A tile without memory is a shim. Unresolvable if the elements are wider than a word."""
        if itemsize not in (1, 2, 4):
            raise Unresolvable(f"itemsize={itemsize}: a descriptor moves elements of 1, 2 or 4 bytes.")
        wrap, step = (1 << tile.wrap_bits) - 1, 1 << tile.step_bits
        run = wrap * WORD // itemsize
        if not tile.memory:
            names, length = ("iteration", "d2", "d1", "d0"), (1 << 32) - 1
            return cls(itemsize, names, (ITERATIONS, None, wrap, run), step, length, REPEATS, tile.descriptors)
        # The length field ends one word short of the tile's memory.
        names, length, cap = ("d3", "d2", "d1", "d0"), tile.memory // WORD - 1, _COMPILED_SIZE
        sizes = (cap if tile.dims == 4 else 1, cap, min(wrap, cap), min(run, cap))
        return cls(itemsize, names, sizes, step, length, 0, tile.descriptors)

    @property
    def granule(self) -> int:
        """Elements in a word."""
        return WORD // self.itemsize

    def why_not(self, descriptor: Descriptor) -> str | None:
        """The rule this descriptor breaks, with the number used and the number there is; None if it is legal."""
        slots = tuple(zip(descriptor.sizes, descriptor.strides, strict=True))
        if min(descriptor.sizes) < 1:
            return f"a size of {min(descriptor.sizes)}; every size must be at least 1"
        head = int(self.repeats > 0)
        inner = Pattern(0, descriptor.sizes[head:], descriptor.strides[head:])
        one_run = inner.contiguous
        walked = (*slots[:head], (inner.size, 1)) if one_run else slots
        words = inner.size * self.itemsize / WORD
        if words > self.length:
            return f"a length of {words:.0f} words; a descriptor counts to {self.length}"
        wrong = (self.slot_why_not(k, *slots[k]) for k in range(head if one_run else 4))
        return self.misaligned(descriptor.offset, walked) or next(filter(None, wrong), None)

    def misaligned(self, offset: int, dims: tuple[Dim, ...]) -> str | None:
        """The rule broken by the elements themselves, which no other arrangement or cut would mend."""
        whole = f"whole {WORD}-byte words ({self.granule} elements)"
        if offset < 0:
            return f"offset {offset} lies before the buffer; the least is 0"
        if offset % self.granule:
            return f"offset {offset} is {offset * self.itemsize} bytes; an offset must be {whole}"
        run, step = dims[-1] if dims else (1, 1)
        if self.granule > 1 and run > 1 and step != 1:
            return f"an innermost stride of {step}; elements of {self.itemsize} bytes must be consecutive, stride 1"
        if run % self.granule:
            return f"a run of {run} elements is {run * self.itemsize} bytes; a run must be {whole}"
        for k, (n, stride) in enumerate(dims):
            if n > 1 and stride < 0:
                return f"stride {stride} of the {n} is negative; a descriptor only steps forward, 1 or more"
            if n > 1 and k < len(dims) - 1 and stride % self.granule:
                return f"stride {stride} of the {n} is {stride * self.itemsize} bytes; a stride must be {whole}"
        return None

    def slot_why_not(self, slot: int, n: int, stride: int) -> str | None:
        """The rule broken by this size and stride in this slot, outermost 0."""
        name, still = self.names[slot], stride == 0 and n > 1
        if still and not (slot == 0 and self.repeats):
            where = "the iteration, the outermost of four," if self.repeats else "a shim's iteration"
            return f"{name} repeats {n} times in place (stride 0); only {where} may"
        most = self.repeats if still else self.sizes[slot]
        if most is not None and n > most:
            return f"{name} has size {n}; there it may have {most}"
        step = stride * self.itemsize // WORD
        if n > 1 and step > self.step:
            return f"{name} steps {step} words (stride {stride}); a step holds {self.step}"
        return None


def plan(pattern: Pattern, limits: BdLimits, *, single: bool = False, most: int | None = None) -> tuple[Descriptor, ...]:
    """Descriptors that together walk exactly this pattern, in its order; as few as the outermost cut gives.

    One if it can be, its dimensions merged and factored; else the outermost is cut, into at most `most`
    (default the tile's count). `single` refuses a cut: the offset or the length is set per call.
    Unresolvable names the rule broken.
    """
    dims = _checked(pattern, limits)
    most = 1 if single else most or limits.descriptors
    found = _cut(dims, limits, most)
    if found is not None:
        return tuple(part.shifted(int(pattern.offset)) for part in found)
    tail = _ONE if single else f"cut, it would need more than the {most} there may be"
    raise _refusal(pattern, limits, f"{_in_words(dims, limits)}; {tail}")


def bounded(pattern: Pattern, axis: int, limits: BdLimits) -> tuple[Descriptor, int]:
    """One descriptor for a pattern whose `axis` is cut to n per call, and the elements of one unit of the axis.

    Cutting changes nothing but the length word, to n * unit elements: `addresses(n * unit)` is
    `pattern.cut(axis, n)`. So `axis` (0 outermost) is the outermost of an execution; dimensions outside it must
    merge into one, which iterates. Unresolvable names the rule broken.
    """
    _checked(pattern, limits)
    itemsize = limits.itemsize
    if not limits.repeats:
        raise _refusal(pattern, limits, "a length set per call; only a shim's descriptor has one")
    unit = math.prod(pattern.sizes[axis + 1 :])
    if unit * itemsize % LENGTH_UNIT:
        words = f"one unit of axis {axis} is {unit} elements, {unit * itemsize} bytes; a length set per call counts"
        raise _refusal(pattern, limits, f"{words} whole {LENGTH_UNIT} bytes, {LENGTH_UNIT // itemsize} elements")
    dims = tuple(zip(pattern.sizes, pattern.strides, strict=True))
    outer, inner = _merged(dims[:axis]), _merged(dims[axis:])
    if len(outer) > 1:
        words = f"{len(outer)} dimensions lie outside axis {axis}, bounded per call; there may be 1, the iteration"
        raise _refusal(pattern, limits, words)
    head = outer or (_UNIT,)
    one_run = len(inner) < 2 and all(stride == 1 for _, stride in inner)
    # The axis whole in d2, whose size no field holds; else wherever it fits with all outside it 1.
    in_d2 = None if one_run else _fit(_merged(dims[axis + 1 :]), limits, (*head, dims[axis]))
    found = in_d2 or _fit(inner, limits, head)
    if found is None:
        raise _refusal(pattern, limits, f"{_in_words(inner, limits, head)}; {_ONE}")
    return found.shifted(int(pattern.offset)), unit


def _checked(pattern: Pattern, limits: BdLimits) -> tuple[Dim, ...]:
    """The pattern's merged dimensions, if any descriptors at all could walk it."""
    if pattern.size < 1:
        raise _refusal(pattern, limits, "no elements; a transfer moves at least one word")
    dims = _merged(tuple(zip(pattern.sizes, pattern.strides, strict=True)))
    if words := limits.misaligned(pattern.offset, dims):
        raise _refusal(pattern, limits, words)
    return dims


def _merged(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Without sizes of 1, and neighbours that step as one made one."""
    merged: list[Dim] = []
    for n, stride in dims:
        if n == 1:
            continue
        if merged and merged[-1][1] == n * stride:
            n *= merged.pop()[0]
        merged.append((int(n), int(stride)))
    return tuple(merged)


def _cut(dims: tuple[Dim, ...], limits: BdLimits, most: int) -> list[Descriptor] | None:
    """At most `most` descriptors. Only the outermost dimension may be cut: cutting another would reorder."""
    one = _fit(dims, limits)
    if one is not None or not dims or most < 2:
        return None if one is None else [one]
    (n, stride), rest = dims[0], dims[1:]
    if rest and _fit(rest, limits) is None:
        each = _cut(rest, limits, most // n)
        return each and [part.shifted(i * stride) for i in range(n) for part in each]
    grain = 1 if rest else limits.granule
    for pieces in range(2, min(n, most) + 1):
        share = math.ceil(n / (pieces * grain)) * grain
        starts = range(0, n, share)
        parts = [_fit(_merged(((min(share, n - start), stride), *rest)), limits) for start in starts]
        if None not in parts:
            return [part.shifted(start * stride) for start, part in zip(starts, parts, strict=True) if part]
    return None


@functools.lru_cache(maxsize=1024)
def _fit(dims: tuple[Dim, ...], limits: BdLimits, head: tuple[Dim, ...] = ()) -> Descriptor | None:
    """One descriptor at offset 0, or None. `head` takes the outermost slot, the dimensions share the others."""
    if math.prod(n for n, _ in dims) > limits.length * limits.granule * max(limits.repeats, 1):
        return None
    descriptors = (Descriptor.of(0, head + slots) for slots in _arrangements(dims, limits, len(head)))
    return next((found for found in descriptors if limits.why_not(found) is None), None)


def _arrangements(dims: tuple[Dim, ...], limits: BdLimits, first: int) -> Iterator[tuple[Dim, ...]]:
    """Ways to fill the slots from `first` on: one run, rows in one execution, rows that iterate, then the rest."""
    if not dims or (len(dims) == 1 and dims[0][1] == 1):
        yield (*(_UNIT,) * (3 - first), *(dims or (_UNIT,)))
    if len(dims) == 2 and dims[1][1] == 1 and first == 0:
        yield from _factored(dims, 3, limits, 1)
        yield (dims[0], _UNIT, _UNIT, dims[1])
    yield from _factored(dims, 3, limits, first)


def _factored(dims: tuple[Dim, ...], slot: int, limits: BdLimits, first: int) -> Iterator[tuple[Dim, ...]]:
    """Fill the slots `first` to `slot` from the inside, each with the largest factor it takes."""
    free = slot - first + 1
    if not dims:
        yield (_UNIT,) * free
    if not 0 < len(dims) <= free:
        return
    *outer, (n, stride) = dims
    for factor in (n,) if len(dims) == free else _divisors(n):
        if factor > 1 and limits.slot_why_not(slot, factor, stride):
            continue
        left = (*outer, (n // factor, factor * stride)) if factor < n else tuple(outer)
        for slots in _factored(left, slot - 1, limits, first):
            yield (*slots, (factor, stride))


@functools.lru_cache(maxsize=1024)
def _divisors(n: int) -> tuple[int, ...]:  # largest first
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}, reverse=True))


def _in_words(dims: tuple[Dim, ...], limits: BdLimits, head: tuple[Dim, ...] = ()) -> str:
    """What is wrong with the dimensions as they are, in one descriptor."""
    free = 4 - len(head)
    if len(dims) > free:
        pairs = ", ".join(f"{n}:{stride}" for n, stride in dims)
        return f"{len(dims)} dimensions {pairs} that do not merge; there are {free}"
    units = (_UNIT,) * (free - len(dims))
    slots = (dims[0], *units, *dims[1:]) if dims and dims[0][1] == 0 else units + dims
    return str(limits.why_not(Descriptor.of(0, head + slots)))


def _refusal(pattern: Pattern, limits: BdLimits, words: str) -> Unresolvable:
    return Unresolvable(f"transfer {pattern} of {limits.itemsize}-byte elements: {words}.")
