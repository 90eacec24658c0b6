"""The arrays of `GatedExperts`, `CombineExperts` and `Route`, simulated: any sizes, rows that a bound leaves out, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import CombineExperts, GatedExperts, Route
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")
F32 = np.float32


def judged(op, dev, given, valid):
    """Simulated over NaN behind the bound: the tile references' bits, and within the contract's tolerance."""
    outputs, poison, _ = simulate(op, dev, given, {"valid": valid})
    cut = {name: a if name in ("gate", "up", "down") else a[:valid] for name, a in given.items()}
    bounded = op.resolved(device(dev)).bounded(rows=valid)
    want = bounded.composed(*cut.values())
    want = want if isinstance(want, tuple) else (want,)
    for name, bits in zip(outputs, want, strict=True):
        assert np.array_equal(outputs[name][:valid].view(np.uint8), np.asarray(bits).view(np.uint8)), name
        assert not poison[name][:valid].any()
    exact = bounded.reference(*cut.values())
    bounded.check(tuple(a[:valid] for a in outputs.values()), exact if isinstance(exact, tuple) else (exact,), *cut.values())
    return outputs


@st.composite
def mixtures(draw):
    """Rows in one block or several, odd numbers of experts, lines that a core's part of a row fills once, twice and a bit, or never."""
    rows = draw(st.sampled_from((1, 3, 16, 34)))
    experts = draw(st.integers(1, 5))
    sizes = dict(rows=rows, experts=experts, k=draw(st.integers(1, experts)))
    return sizes, 2 * draw(st.integers(1, 24)), 2 * draw(st.integers(1, 24)), draw(st.integers(1, rows)), draw(st.integers(0, 99))


def numbers(rng, rows, valid, *shape, dtype=bfloat16):
    """Random, and NaN from row `valid` on."""
    made = rng.standard_normal((rows, *shape)).astype(dtype)
    made[valid:] = np.nan
    return made


@settings(max_examples=12, deadline=None)
@given(mixture=mixtures(), dev=st.sampled_from(DEVICES))
def test_any_experts_open_any_rows(mixture, dev):
    """ids negative and beyond their ends."""
    sizes, hidden, inner, valid, seed = mixture
    rng, rows, e = np.random.default_rng(seed), sizes["rows"], sizes["experts"]
    op = GatedExperts(**sizes, hidden=hidden, inner=inner)
    gate, up = rng.standard_normal((2, e, inner, hidden)).astype(bfloat16)
    ids = rng.integers(-e - 1, e + 2, (rows, sizes["k"])).astype(np.int32)
    judged(op, dev, dict(x=numbers(rng, rows, valid, hidden), gate=gate, up=up, ids=ids), valid)


@settings(max_examples=24, deadline=None)
@given(mixture=mixtures(), shares=st.integers(0, 2), dev=st.sampled_from(DEVICES))
def test_any_experts_are_added_with_what_is_shared(mixture, shares, dev):
    """Nothing shared, something, or something behind a gate."""
    sizes, hidden, inner, valid, seed = mixture
    rng, rows, e, k = np.random.default_rng(seed), sizes["rows"], sizes["experts"], sizes["k"]
    op = CombineExperts(**sizes, hidden=hidden, inner=inner, shares=shares > 0, gates=shares > 1)
    given = dict(x=numbers(rng, rows, valid, k, inner), down=rng.standard_normal((e, hidden, inner)).astype(bfloat16))
    given["ids"] = rng.integers(-e - 1, e + 2, (rows, k)).astype(np.int32)
    given["weights"] = numbers(rng, rows, valid, k, dtype=F32)
    if shares:
        given["shared"] = numbers(rng, rows, valid, hidden)
    if shares > 1:
        given["shared_gate"] = 4 * numbers(rng, rows, valid, 1, dtype=F32)
    judged(op, dev, given, valid)


@settings(max_examples=12, deadline=None)
@given(k=st.integers(1, 9), more=st.integers(0, 9), rows=st.sampled_from((1, 6, 16)), cut=st.integers(1, 16), dev=st.sampled_from(DEVICES))
def test_any_rows_are_routed_to_any_number(k, more, rows, cut, dev):
    """To the bit, whether a transfer can be cut to the rows of a call or not."""
    rng, valid = np.random.default_rng(k), min(cut, rows)
    op = Route(rows=rows, experts=k + more, k=k, renormalise=bool(more % 2))
    logits = numbers(rng, rows, valid, k + more, dtype=F32)
    outputs = judged(op, dev, dict(logits=logits), valid)
    ids, weights = op.reference(logits)
    assert np.array_equal(outputs["ids"][:valid], ids[:valid]) and np.array_equal(outputs["weights"][:valid], weights[:valid])


def test_a_bound_spares_rows_where_transfers_can_be_cut(rng):
    """Four ids are 16 bytes, which a length counts in; of three all rows go by."""
    logits = rng.standard_normal((16, 8)).astype(F32)
    moved = [simulate(Route(rows=16, experts=8, k=k), "npu1", dict(logits=logits), {"valid": 5})[2].elements("logits") for k in (4, 3)]
    assert moved == [8 * 8, 16 * 8]


def test_an_array_reads_every_expert_once_for_a_block(rng):
    """And what is shared once, in lines that its part of a row fills again and again."""
    op = CombineExperts(rows=32, experts=3, hidden=16, inner=24, k=2, shares=True, gates=True, num_aie_columns=2)
    shapes = {name: getattr(op, name).shape for name in ("x", "down", "ids", "weights", "shared", "shared_gate")}
    given = {name: rng.standard_normal(shape).astype(getattr(op, name).format.dtype) for name, shape in shapes.items()}
    _, _, stats = simulate(op, "npu1", given)
    assert op.resolved(device("npu1")).block == 16 and stats.elements("down") == 2 * given["down"].size
    assert stats.elements("x") == 2 * given["x"].size and stats.elements("shared") == 2 * 32 * 24


@pytest.mark.parametrize(
    ("cls", "fields", "words"),
    [
        (CombineExperts, dict(hidden=33), "CombineExperts: hidden=33 of bfloat16 are no whole 4-byte words. Nearest legal: hidden=32."),
        (CombineExperts, dict(inner=33), "CombineExperts: inner=33 of bfloat16 are no whole 4-byte words. Nearest legal: inner=32."),
        (CombineExperts, dict(num_aie_columns=3), "=3 do not share out hidden=32 in pairs. Nearest legal: num_aie_columns=2."),
        (CombineExperts, dict(O=F32), "CombineExperts: O=float32; an array takes bfloat16, the CPU others. Legal: O=bfloat16."),
        (CombineExperts, dict(hidden=1 << 16), r"needs \d+ bytes of its 65536 .* Legal: hidden=\d+\."),
        (GatedExperts, dict(hidden=1 << 16), r"needs \d+ bytes of its 65536 .* Legal: hidden=\d+\."),
        (Route, dict(experts=128, k=65), "Route: k=65; a core keeps at most 64. Nearest legal: k=64."),
        (Route, dict(experts=1025), "Route: experts=1025; a core takes at most 1024. Nearest legal: experts=1024."),
        (GatedExperts, dict(inner=31), "GatedExperts: inner=31 of bfloat16 are no whole 4-byte words. Nearest legal: inner=30."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dev", DEVICES)
def test_what_no_array_takes_is_refused(cls, fields, words, dev):
    """With the nearest that one takes, which it does."""
    sizes = dict(rows=2, experts=4, k=2) | ({} if cls is Route else dict(hidden=32, inner=32))
    with pytest.raises(Unresolvable, match=words) as error:
        build(cls(**sizes | fields), dev)
    said = re.search(r"egal: (\w+)=(\w+)", str(error.value))
    build(cls(**sizes | fields | {said[1]: int(said[2]) if said[2].isdigit() else said[2]}), dev)
