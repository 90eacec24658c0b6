"""Every family past its context, and from a file: keys, values, sliding caches and states that cannot go back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_lm.generation import shifting
from iron_lm.generation.session import Session
from iron_lm.generation.shifting import Shift
from iron_lm.generation.states import States


def pair(family: Any, backend: str, chunk: int) -> tuple[Session, Session]:
    """Two sessions of one model; of three families some caches slide."""
    loaded = family.load(max_seq_len=192 if family.name in ("mistral", "gemma3", "phi3") else 128)
    one, other = (Session(loaded.model(prefill_chunk=chunk), backend=backend) for _ in range(2))
    return one, other


@pytest.mark.parametrize("backend", ["host", "reference"])
def test_a_session_goes_on_from_a_file(family: Any, backend: str, tmp_path: Path) -> None:
    """Behind an answer past a chunk's end: with the next token, with a turn, and with one that takes part of it back."""
    one, other = pair(family, backend, 64)
    said = one.generate(family.ids[:60], 20)
    States(one, {}).save(tmp_path / "s")
    assert States(other, {}).load(tmp_path / "s").ids == [*family.ids[:60], *said[:-1]]
    whole = [*family.ids[:60], *said]
    for ids in (whole, [*whole, *family.ids[:9]], [*whole[:70], *family.ids[:5]], whole[:66]):
        a, b = (session.logits(ids).copy().view(np.uint32) for session in (one, other))
        assert np.array_equal(a, b), len(ids)
    if one.snapshots is not None and other.snapshots is not None:
        assert one.snapshots.kept == other.snapshots.kept and one.snapshots.again == other.snapshots.again


@pytest.mark.parametrize("backend", ["host", "reference"])
def test_an_answer_past_the_context_is_a_fresh_sessions(family: Any, backend: str) -> None:
    """With half of what is not kept gone: what follows is what a session says that was given what is left."""
    one, fresh = pair(family, backend, 64)
    context = one.model.run.max_seq_len
    shift, ids = Shift(context, 7), family.ids[:60]
    count = context - 60 + 12
    answer = shifting.generate(one, ids, count, shift=shift)
    assert len(answer) == count
    left = shift([*ids, *answer[:-12]])
    assert len(left) == 7 + (context - 7) // 2 and fresh.generate(left, 12) == answer[-12:]
    a, b = (session.logits([*left, *answer[-12:], 5]).copy().view(np.uint32) for session in (one, fresh))
    assert np.array_equal(a, b)
