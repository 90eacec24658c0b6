"""Buffer descriptors: the words that a tile's DMA walks by, and the walk they say (bit layouts: AM025)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from iron_core.devices import DESCRIPTOR_STEP, WORD
from iron_npu.formats.addresses import tile_of
from iron_npu.formats.fields import Field, packed

#: Words of any tile's descriptor.
WORDS = DESCRIPTOR_STEP // WORD
#: The words of a shim's descriptor that have its length and the low half of its address.
LENGTH_WORD, ADDRESS_WORD = 0, 1
#: Of each kind of tile. "wrap" 0 is no wrap; "step" and "iteration_wrap" are kept less 1. Lengths and core's and memory tiles' bases
#: are 4-byte words.
FIELDS: dict[str, tuple[Field, ...]] = {
    "core": (
        Field("base", 0, 14, 14), Field("length", 0, 0, 14), Field("compress", 1, 31, 1), Field("packet", 1, 30, 1),
        Field("out_of_order", 1, 24, 6), Field("packet_id", 1, 19, 5), Field("packet_type", 1, 16, 3), Field("step1", 2, 13, 13),
        Field("step0", 2, 0, 13), Field("wrap1", 3, 21, 8), Field("wrap0", 3, 13, 8), Field("step2", 3, 0, 13),
        Field("iteration", 4, 19, 6), Field("iteration_wrap", 4, 13, 6), Field("iteration_step", 4, 0, 13), Field("no_last", 5, 31, 1),
        Field("next", 5, 27, 4), Field("use_next", 5, 26, 1), Field("valid", 5, 25, 1), Field("release", 5, 18, 7),
        Field("release_lock", 5, 13, 4), Field("acquires", 5, 12, 1), Field("acquire", 5, 5, 7), Field("acquire_lock", 5, 0, 4),
    ),
    "shim": (
        Field("length", 0), Field("low", 1), Field("packet", 2, 30, 1), Field("out_of_order", 2, 24, 6), Field("packet_id", 2, 19, 5),
        Field("packet_type", 2, 16, 3), Field("high", 2, 0, 16), Field("secure", 3, 30, 1), Field("wrap0", 3, 20, 10),
        Field("step0", 3, 0, 20), Field("burst", 4, 30, 2), Field("wrap1", 4, 20, 10), Field("step1", 4, 0, 20), Field("smid", 5, 28, 4),
        Field("cache", 5, 24, 4), Field("qos", 5, 20, 4), Field("step2", 5, 0, 20), Field("iteration", 6, 26, 6),
        Field("iteration_wrap", 6, 20, 6), Field("iteration_step", 6, 0, 20), Field("no_last", 7, 31, 1), Field("next", 7, 27, 4),
        Field("use_next", 7, 26, 1), Field("valid", 7, 25, 1), Field("release", 7, 18, 7), Field("release_lock", 7, 13, 4),
        Field("acquires", 7, 12, 1), Field("acquire", 7, 5, 7), Field("acquire_lock", 7, 0, 4),
    ),
    "mem": (
        Field("packet", 0, 31, 1), Field("packet_type", 0, 28, 3), Field("packet_id", 0, 23, 5), Field("out_of_order", 0, 17, 6),
        Field("length", 0, 0, 17), Field("before0", 1, 26, 6), Field("next", 1, 20, 6), Field("use_next", 1, 19, 1),
        Field("base", 1, 0, 19), Field("no_last", 2, 31, 1), Field("wrap0", 2, 17, 10), Field("step0", 2, 0, 17),
        Field("before1", 3, 27, 5), Field("wrap1", 3, 17, 10), Field("step1", 3, 0, 17), Field("compress", 4, 31, 1),
        Field("before2", 4, 27, 4), Field("wrap2", 4, 17, 10), Field("step2", 4, 0, 17), Field("after2", 5, 28, 4),
        Field("after1", 5, 23, 5), Field("after0", 5, 17, 6), Field("step3", 5, 0, 17), Field("iteration", 6, 23, 6),
        Field("iteration_wrap", 6, 17, 6), Field("iteration_step", 6, 0, 17), Field("valid", 7, 31, 1), Field("release", 7, 24, 7),
        Field("release_lock", 7, 16, 8), Field("acquires", 7, 15, 1), Field("acquire", 7, 8, 7), Field("acquire_lock", 7, 0, 8),
    ),
}  # fmt: skip

#: Size and stride, in words.
Dim = tuple[int, int]


def fields_of(kind: str, words: Sequence[int]) -> dict[str, int]:
    """A descriptor's fields by name, out of its eight words."""
    return {field.name: field.get(words) for field in FIELDS[kind]}


def words_of_fields(kind: str, **given: int) -> list[int]:
    """A descriptor's eight words; fields that are not given are 0. ImageError for a number that a field does not hold."""
    names = {field.name: 0 for field in FIELDS[kind]}
    return packed(FIELDS[kind], names | given, WORDS)


def merged(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """The same walk in as few dimensions as can be, outermost first: equal walks are equal here."""
    found: list[Dim] = []
    for n, stride in dims:
        if n == 1:
            continue
        if found and found[-1][1] == n * stride:
            n *= found.pop()[0]
        found.append((n, stride))
    return tuple(found)


@attrs.frozen
class Update:
    """A word of the scratchpad that is added to a pair of registers: its number, a function of it, and the function's number."""

    index: int
    function: int
    argument: int


@attrs.frozen
class Descriptor:
    """One walk of a DMA, in 4-byte words.

    length: words of one execution. wraps, steps: of its dimensions, outermost first; a wrap of 0 takes all that is left of the
    length, as the outermost does. iteration: how many executions go on from one another, and by what. address: a byte of the
    tile's memory, or of the host's; of a shim's that was patched, `offset` bytes into `argument`. packet: its id and type, None
    where it is a circuit's. next: the descriptor behind it in its chain. length_by, offset_by: what the scratchpad adds.
    """

    number: int
    length: int
    wraps: tuple[int, ...]
    steps: tuple[int, ...]
    iteration: Dim = (1, 0)
    address: int = 0
    argument: int | None = None
    offset: int = 0
    packet: tuple[int, int] | None = None
    next: int | None = None
    length_by: Update | None = None
    offset_by: Update | None = None

    @classmethod
    def of(cls, kind: str, number: int, words: Sequence[int]) -> Descriptor:
        """Out of the words of its registers."""
        given = fields_of(kind, words)
        slots = range(tile_of(kind).dims - 1, -1, -1)
        wrap, step = given["iteration_wrap"] + 1, given["iteration_step"] + 1
        return cls(
            number,
            given["length"],
            tuple(given.get(f"wrap{k}", 0) for k in slots),
            tuple(given[f"step{k}"] + 1 for k in slots),
            (wrap, step if wrap > 1 else 0),
            given["high"] << 32 | given["low"] if kind == "shim" else WORD * given["base"],
            packet=(given["packet_id"], given["packet_type"]) if given["packet"] else None,
            next=given["next"] if given["use_next"] else None,
        )

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Sizes and strides of one execution, outermost first. What never steps has stride 0."""
        left, found = self.length, []
        for k, (wrap, step) in enumerate(zip(reversed(self.wraps), reversed(self.steps), strict=True)):
            size = min(wrap, left) if wrap and k < len(self.wraps) - 1 else left
            found.append((size, step if size > 1 else 0))
            left = -(-left // wrap) if wrap else 1
        return tuple(reversed(found))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(n for n, _ in self.dims)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(stride for _, stride in self.dims)

    def walk(self, executions: int = 1) -> tuple[Dim, ...]:
        """All its executions as one walk, merged. The iteration begins again as often as it is through."""
        wrap, step = self.iteration
        if executions < wrap:
            return merged(((executions, step), *self.dims))
        return merged(((-(-executions // wrap), 0), (wrap, step), *self.dims))
