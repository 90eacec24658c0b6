"""Where the streams of attention's pipelines enter and leave an array: the columns of their memory tiles and shims."""

from __future__ import annotations

import attrs

#: Pipelines that one memory tile serves with queries, and collects outputs from.
SERVED = 6


@attrs.frozen
class Places:
    """Columns of the memory tile and shim of every lane of Q, O, K, V and the bias."""

    q: tuple[int, ...]
    o: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    bias: tuple[int, ...]


def places_of(p: int, packed: bool, columns: int, parts: int = 1, biased: bool = False) -> Places | None:
    """Columns for the lanes of p pipelines, which stand in columns 0 to p - 1; None where there is no room.

    parts: cores that add up values, each with V and O of its own. A memory tile has six channels each way, two of which a
    pipeline's scores and weights take; a shim has two each way.
    """
    if p > columns:
        return None
    arriving = {c: 4 if c < p else 6 for c in range(columns)}
    leaving, fills, drains = dict(arriving), dict.fromkeys(range(columns), 2), dict.fromkeys(range(columns), 2)

    def take(into: int, out: int, shim: dict[int, int], at: int | None = None) -> int | None:
        fit = [c for c in range(columns) if at in (None, c) and arriving[c] >= into and leaving[c] >= out and shim[c] > 0]
        if not fit:
            return None
        best = max(fit, key=lambda c: (arriving[c] + leaving[c], -c))
        arriving[best] -= into
        leaving[best] -= out
        shim[best] -= 1
        return best

    lanes = q_lanes(p)
    each = p // lanes
    k: list[int | None] = []
    v: list[list[int | None]] = []
    if packed:  # a pipeline's own stand in its column, as far as its shim has channels
        k = [take(1, 1, fills, at) for at in range(p)]
        v = [[take(1, 1, fills, at)] for at in range(p)]
    q = [take(1, each, fills) for _ in range(lanes)]
    o = [take(each, 1, drains) for _ in range(lanes * parts)]
    if not packed:
        k, v = [take(1, 1, fills)], [[take(1, 1, fills)]]
    for lane in v:
        lane += [take(1, 1, fills) for _ in range(parts - 1)]
    bias = [take(1, 1 if packed else each, fills) for _ in range(bias_lanes(p, packed))] if biased else []
    values = [column for lane in v for column in lane]
    found = (*q, *o, *k, *values, *bias)
    if any(c is None for c in found):
        return None
    return Places(tuple(q), tuple(o), tuple(k), tuple(values), tuple(bias))  # type: ignore[arg-type]


def q_lanes(p: int) -> int:
    """Lanes that p pipelines take their queries from."""
    return 1 if p <= SERVED else 2


def bias_lanes(p: int, packed: bool) -> int:
    """Lanes that p pipelines take their bias from: as queries, or for one query each its own."""
    return p if packed else q_lanes(p)
