"""Where buffers lie: a run's intermediate ones by greedy best-fit placement into banks, residents one behind another.

Intermediate buffers that are never live together share bytes. Memory is cut into banks because an NPU driver maps
at most 4 GiB as one object; the limit here leaves room below that.

With `IRON_GUARD=BYTES` in the environment no two buffers share, and that many bytes lie before, between and behind them: what
a sanitizer needs to see an access past a buffer's end. It is for tests; memory grows as it must.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable

import attrs

from iron_core.errors import UnsupportedError
from iron_core.image.liveness import Lifetime

#: Every offset is a multiple of this many bytes (a cache line; a DMA burst is no wider on the devices we know).
ALIGNMENT = 64

#: The most bytes of one bank.
BANK_BYTES = 7 << 29  # 3.5 GiB


def guard_bytes() -> int:
    """Bytes of a gap between buffers: `IRON_GUARD`, else 0."""
    given = os.environ.get("IRON_GUARD", "")
    return align(int(given)) if given.isdecimal() else 0


def align(nbytes: int) -> int:
    """`nbytes` rounded up to whole `ALIGNMENT`s."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@attrs.frozen
class Spot:
    """A place: bank number and byte offset into it. Banks of the arena and banks of residents are numbered apart."""

    bank: int
    offset: int


@attrs.frozen
class Arena:
    """Where each buffer lies, and the banks' sizes in bytes."""

    spots: dict[Hashable, Spot]
    banks: tuple[int, ...]


def place(buffers: Iterable[Lifetime], *, bank_bytes: int = BANK_BYTES, guard: int = 0, front: int = 0) -> Arena:
    """Place every buffer so that no two that are live together overlap; with `guard` no two at all, and that far apart.

    Largest first (ties: earlier, then by name), each into the smallest gap that holds it among those live
    with it, in the first bank that has room. front: bytes at the beginning of the first bank that none may have.
    UnsupportedError for a buffer larger than a bank.
    """
    ordered = sorted(buffers, key=lambda b: (-b.nbytes, b.first, str(b.name)))
    if ordered and ordered[0].nbytes + 2 * guard > bank_bytes:
        raise UnsupportedError(
            f"buffer {ordered[0].name!r} has {ordered[0].nbytes} bytes and a bank of the arena holds {bank_bytes - 2 * guard}. "
            "Cut the tensor: fewer rows per call, or a smaller chunk."
        )
    if guard:
        return _apart(ordered, bank_bytes, guard, front)
    banks: list[list[tuple[int, int, Lifetime]]] = [[]] if front else []  # per bank: (offset, end, buffer)
    spots: dict[Hashable, Spot] = {}
    for buffer in ordered:
        need = align(buffer.nbytes)
        number, offset = 0, None
        while offset is None:
            if number == len(banks):
                banks.append([])
            offset = _best_gap(banks[number], buffer, need, bank_bytes, 0 if number else front)
            number += offset is None
        banks[number].append((offset, offset + need, buffer))
        spots[buffer.name] = Spot(number, offset)
    # An aligned tail may pass the limit by less than the alignment; the bank itself never does.
    sizes = tuple(min(max((end for _, end, _ in placed), default=front), bank_bytes) for placed in banks)
    return Arena(spots, sizes)


def append(nbytes: int, banks: list[int]) -> Spot:
    """The place of `nbytes` that stay, at most a bank: behind what the first bank with room holds. `banks`, their sizes, grow."""
    need = align(nbytes)
    number = next((n for n, used in enumerate(banks) if used + need <= BANK_BYTES), len(banks))
    if number == len(banks):
        banks.append(0)
    spot = Spot(number, banks[number])
    banks[number] += need
    return spot


def _apart(buffers: list[Lifetime], bank_bytes: int, guard: int, front: int) -> Arena:
    """`place` with gaps: every buffer behind the one before, live together or not."""
    ends: list[int] = [front + guard] if front else []
    spots: dict[Hashable, Spot] = {}
    for buffer in buffers:
        if not ends or ends[-1] + buffer.nbytes + guard > bank_bytes:
            ends.append(guard)
        spots[buffer.name] = Spot(len(ends) - 1, ends[-1])
        ends[-1] += align(buffer.nbytes) + guard
    return Arena(spots, tuple(min(end, bank_bytes) for end in ends))


def _best_gap(placed: list[tuple[int, int, Lifetime]], buffer: Lifetime, need: int, limit: int, front: int) -> int | None:
    """Offset of the tightest gap among what is live with `buffer`, from `front` on; past all of it if no gap holds it; None if full."""
    best: tuple[int, int] | None = None
    top = front
    for offset, end, _ in sorted((e for e in placed if e[2].meets(buffer)), key=lambda e: e[:2]):
        gap = offset - top
        if gap >= need and (best is None or gap < best[0]):
            best = (gap, top)
        top = max(top, end)
    if best is not None:
        return best[1]
    return top if top + buffer.nbytes <= limit else None
