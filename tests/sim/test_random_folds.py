"""Graphs at random, folded and not: the same bits in every output and every state, call after call."""

from __future__ import annotations

import random

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, ElementwiseMul, ReLU, RMSNorm, SiLU

D, ROWS = 64, 6
KINDS = {"finish", "placed", "prologue"}
#: One in so many steps is of that sort.
STEPS = {"product": 4, "activation": 3, "pair": 3, "norm": 2, "store": 2, "load": 1}


class Random(iron.Graph):
    """Steps drawn by a seed: mostly each on what the last one made. What is stored and loaded lies in states, at a place or where a
    call says."""

    def __init__(self, seed):
        self.seed = seed
        rng = np.random.default_rng(seed)
        self.weights = [iron.weight((rng.standard_normal((D, D)) / 8).astype(bfloat16)) for _ in range(3)]
        self.g = rng.standard_normal(D).astype(bfloat16)
        self.rows, self.two = iron.state((ROWS, D), name="rows"), iron.state((2 * D,), name="two")

    def body(self, x, *, at: iron.Scratchpad[np.int32]):
        rng = random.Random(self.seed)
        made = [ReLU(x)]
        places = (self.rows[at], self.rows[2], self.two[:D], self.two[D:])
        for kind in rng.choices([*STEPS], [*STEPS.values()], k=rng.randint(4, 11)):
            last = made[-1] if rng.random() < 0.8 else rng.choice(made)
            if kind == "product":
                made.append(GEMV(rng.choice(self.weights), last))
            elif kind == "activation":
                made.append(rng.choice((SiLU, ReLU))(last))
            elif kind == "pair":
                pair = [last, rng.choice(made)]
                made.append(rng.choice((ElementwiseAdd, ElementwiseMul))(*rng.sample(pair, 2)))
            elif kind == "norm":
                weight = {"weight": self.g} if rng.random() < 0.5 else {}
                made.append(RMSNorm(last.reshape(1, D), **weight).reshape(D))
            elif kind == "store":
                Copy(rng.choice((last, SiLU(last), GEMV(self.weights[0], last))), rng.choice(places))
            else:
                made.append(Copy(rng.choice(places)))
        return ElementwiseAdd(made[-1], made[0])


@pytest.mark.parametrize("seeds", [range(n, n + 4) for n in range(0, 20, 4)], ids=str)
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_folds_of_any_graph_change_no_bit(dev, seeds):
    """Every kind of fold is among them."""
    taken = set()
    for seed in seeds:
        plain, folded = (Random(seed).compile(x=(D,), backend="sim", dev=dev, fold=fold) for fold in (False, True))
        taken |= {fold.kind for fold in folded.plan.versions[0].folds}
        for at in (0, 5, 2):
            x = np.random.default_rng(at).standard_normal(D).astype(bfloat16)
            assert np.asarray(plain(x, at=at)).tobytes() == np.asarray(folded(x, at=at)).tobytes(), f"seed {seed}"
        for state in (resident.name for resident in plain.plan.residents if resident.kind == "state"):
            assert np.asarray(plain.read(state)).tobytes() == np.asarray(folded.read(state)).tobytes(), f"seed {seed}"
    assert taken == KINDS
