"""Merge and Sample on the host: each against its reference at random shapes, dtypes, views and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import bfloat16
from iron_host.backend import HostBackend
from iron_ops_aie import Copy, Merge, Sample
from iron_ops_aie.tokens.draw import ROW_WORDS, draw_words

HOST = HostBackend(threads=2, strict=True)
RANDOM = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


class Merged(iron.Graph):
    """The first rows of a part of the ids."""

    def __init__(self, part, **fields):
        self._part, self._fields = part, fields

    def body(self, ids, *, n: iron.Scratchpad[np.int32]):
        return Merge(ids[self._part, :n], **self._fields)


@pytest.mark.slow
@RANDOM
@given(st.data())
def test_merge_is_its_reference(data):
    """Of a part of a larger tensor, as many ids as a call says; none at all, too."""
    parts, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 150))
    fields = dict(audio_token=3, image_token=data.draw(st.sampled_from((-1, 0, 7))))
    fields |= {name: data.draw(st.integers(0, 1 << 20)) for name in ("audio_at", "vision_at")}
    part = data.draw(st.integers(0, parts - 1))
    ids = np.random.default_rng(rows).choice([3, fields["image_token"], 1, 2], (parts, rows)).astype(np.int32)
    compiled = Merged(part, **fields).compile(backend=HOST, ids=(ids.shape, np.int32))
    for n in {rows, data.draw(st.integers(0, rows))}:
        assert np.asarray(compiled(ids, n=n)).tolist() == Merge(rows=rows, **fields).reference(ids[part])[:n].tolist()


class Drawn(iron.Graph):
    """A token of one row of logits, by one row of the draws."""

    def __init__(self, draws, k_max):
        self.draws, self.record, self._k_max = iron.weight(draws), iron.state((len(draws),), np.int32), k_max

    def body(self, logits, *, at: iron.Scratchpad[np.int32]):
        record, token = Sample(
            logits.reshape(logits.shape[0]), self.draws[:], self.record, row=at * ROW_WORDS, at=at, k_max=self._k_max
        )
        return Copy(token), Copy(record)


@pytest.mark.slow
@RANDOM
@given(st.data())
def test_sample_is_its_reference(data):
    """At every step of a run: the row of draws it is told, and the place of the record; ties, and logits that are not finite."""
    vocab, steps, k_max = (data.draw(st.integers(1, most)) for most in (200, 4, 70))
    dtype = data.draw(st.sampled_from((np.dtype(np.float32), bfloat16, np.dtype(np.float16))))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    temperatures = rng.choice([0, 0.3, 1, 40], steps)
    draws = np.stack([draw_words(t, int(rng.integers(-1, 80)), int(rng.integers(1 << 53))) for t in temperatures])
    compiled = Drawn(draws, k_max).compile(backend=HOST, logits=((vocab,), dtype))
    op = Sample(vocab=vocab, steps=steps, T=dtype, k_max=k_max)
    want = np.zeros(steps, np.int32)
    for at in range(steps):
        logits = (rng.integers(-3, 3, vocab) if rng.random() < 0.5 else rng.standard_normal(vocab) * 4).astype(dtype)
        if rng.random() < 0.1:
            logits[rng.integers(vocab)] = rng.choice([np.nan, np.inf, -np.inf])
        token, record = compiled(logits, at=at)
        want, chosen = op.reference(logits, draws, want, row=at * ROW_WORDS, at=at)
        assert np.asarray(token).tolist() == chosen.tolist() and np.asarray(record).tolist() == want.tolist()
