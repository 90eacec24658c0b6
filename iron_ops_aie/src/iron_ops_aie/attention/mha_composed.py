"""What attention's array computes, in numpy: its kernels' tile references, block by block."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core import Kernel, bfloat16, round_to
from iron_ops_aie.attention.kernels_mha import PLACE, AttentionKernels


@attrs.frozen
class Scores:
    """What happens to a block of scores: `add` puts a bias on them, `cap` bends them, `hide` hides keys. None: does not."""

    add: Kernel | None
    cap: Kernel | None
    hide: Kernel


def blocks(x: np.ndarray, b: int) -> np.ndarray:
    """(heads, n, d) with n filled up by zeros to whole blocks, at least one."""
    heads, n, d = x.shape
    whole = np.zeros((heads, max(1, -(-n // b)) * b, d), bfloat16)
    whole[:, :n] = x
    return whole


def attend(k: AttentionKernels, scored: Scores, q: Any, keys: Any, values: Any, bias: Any, seen: np.ndarray, at: int, m: int) -> np.ndarray:
    """A block of queries, the first at key `at`, over the first m keys: every block of keys that one of them sees.

    bias: (rows, keys) of the rows that have one, or None. seen: (rows, keys), who sees what.
    """
    b = k.b
    multiply, softmax, clear, add = k.matmul_QK(), k.softmax(), k.clear("v"), k.matmul_PV()
    parts = [slice(first, first + k.width) for first in range(0, k.d, k.width)]
    state, sums = k.init_state().reference(), [k.zero_sums().reference() for _ in parts]
    held_q = k.hold("q", q)
    visible = np.flatnonzero(seen.reshape(b, -1, b).any((0, 2)))
    for number, first in enumerate(visible * b):
        block = slice(first, first + b)
        scores = round_to(multiply.reference(held_q, k.hold("k", keys[block]), k.zero_scores().reference(), PLACE), bfloat16)
        scores = k.rows("scores", scores)
        if scored.add is not None:
            scores = round_to(scored.add.reference(scores, bias[:, block]), bfloat16)
        if scored.cap is not None:
            scores = round_to(scored.cap.reference(scores), bfloat16)
        scores = round_to(scored.hide.reference(scores, at - first, m - first), bfloat16)
        weights, state = softmax.reference(scores, state, PLACE)
        state = k.kept(state)
        held = k.hold("weights", round_to(weights, bfloat16).reshape(b, b))
        for i, part in enumerate(parts):
            v = round_to(clear.reference(k.hold("v", values[block, part]), m - first, b), bfloat16)
            sums[i] = k.kept(add.reference(held, v, sums[i], state, number, PLACE))
    divided = [k.rescale().reference(added, state, PLACE)[0] for added in sums]
    out = np.concatenate([k.rows("out", round_to(part, bfloat16)) for part in divided], 1)
    out[~seen.any(1)] = 0
    return out
