"""An answer that outgrows its context: what is kept is what a session has that never had more, bit for bit."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import UsageError
from iron_lm.generation import shifting
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.shifting import Shift

CONTEXT = 64
SAMPLERS = {
    "greedy": Sampler(), "by the graph": Sampler(temperature=1.0, seed=3), "here": Sampler(temperature=1.0, top_p=0.9, seed=3)
}  # fmt: skip


@pytest.fixture(scope="module")
def sessions(tiny: Any) -> tuple[Session, Session]:
    """Two of one model, in chunks of 16."""
    made = tuple(Session(tiny.model(max_seq_len=CONTEXT, prefill_chunk=16), backend="host") for _ in range(2))
    return made[0], made[1]


def by_hand(fresh: Session, ids: list[int], count: int, sampler: Sampler, shift: Shift) -> list[int]:
    """The answer, a token at a time, each by a session that forgot all."""
    seen, answer, shifts = list(ids), list[int](), 0
    while len(answer) < count:
        if len(seen) == shift.context:
            gone = (len(seen) - shift.keep + 1) // 2
            seen, shifts = seen[: shift.keep] + seen[shift.keep + gone :], shifts + 1
        fresh.reset()
        own = attrs.evolve(sampler, seed=sampler.seed + shifts)
        seen, answer = [*seen, *fresh.generate(seen, 1, own)], [*answer, *fresh.generate(seen, 1, own)]
    return answer


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_an_answer_goes_on_as_a_fresh_session_does(tiny: Any, sessions: Any, sampler: Sampler) -> None:
    """Three shifts: each token is what a session gives that begins with what is left; whole, and one by one."""
    shift, ids = Shift(CONTEXT, 5), tiny.ids[:20]
    want = by_hand(sessions[1], ids, 130, sampler, shift)
    assert shifting.generate(sessions[0], ids, 130, sampler, shift=shift) == want
    sessions[0].reset()
    assert list(shifting.tokens(sessions[0], ids, 130, sampler, shift=shift)) == want


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_prompt_keep_and_context(tiny: Any, sessions: Any, data: st.DataObject) -> None:
    """After any number of shifts the logits are those of a session that was given what is left."""
    context = data.draw(st.integers(8, CONTEXT))
    shift = Shift(context, data.draw(st.integers(0, context - 2)))
    ids = tiny.ids[: data.draw(st.integers(1, context - 1))]
    count = data.draw(st.integers(1, 2 * context))
    session, fresh = sessions
    if not data.draw(st.booleans()):
        session.reset()
    answer = shifting.generate(session, ids, count, shift=shift)
    assert len(answer) == count
    seen = list(ids)
    for token in answer:
        seen = [*shift(seen), token]
        assert len(seen) <= context
    fresh.reset()
    held = seen[:-1] or seen
    assert session.held == held
    np.testing.assert_array_equal(session.logits(seen).view(np.uint32), fresh.logits(seen).view(np.uint32))


def test_what_stays() -> None:
    """The first ones, and the newer half of the others; nothing goes while there is room."""
    assert Shift(8, 2)(list(range(8))) == [0, 1, 5, 6, 7] and Shift(8)(list(range(8))) == [4, 5, 6, 7]
    assert Shift(8, 6)(list(range(8))) == [0, 1, 2, 3, 4, 5, 7] and Shift(8, 2)([1, 2]) == [1, 2]
    for keep in (-1, 7, 8):
        with pytest.raises(UsageError, match=r"Legal: 0 to 6\."):
            Shift(8, keep)


def test_what_of_a_prompt_is_kept() -> None:
    """As many as asked, all for -1, never more than there are; else the token that every text begins with."""
    assert [shifting.kept_of([7, 8, 9], keep, 7) for keep in (None, 0, 2, 5, -1)] == [1, 0, 2, 3, 3]
    assert [shifting.kept_of([7, 8, 9], None, bos) for bos in (None, 8)] == [0, 0]


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_it_ends_where_it_is_told_to(tiny: Any, sessions: Any, sampler: Sampler) -> None:
    """By a stop token or by the caller behind a shift, at the token that fills the context too."""
    session, ids, shift = sessions[0], tiny.ids[:20], Shift(CONTEXT, 5)
    said = shifting.generate(session, ids, 100, sampler, shift=shift)
    stop = next(n for n in range(50, 100) if said[n] not in said[:n])
    assert shifting.generate(session, ids, 100, sampler, stop=(said[stop],), shift=shift) == said[:stop]
    for last in (CONTEXT - len(ids), 60):
        told: list[int] = []
        answer = shifting.generate(session, ids, 100, sampler, lambda t, n=last, to=told: bool(to.append(t)) or len(to) == n, shift=shift)  # type: ignore[misc]
        assert answer == told == said[:last]
    assert shifting.generate(session, ids, 0, sampler, shift=shift) == []


def test_a_prompt_that_fills_the_context_is_refused(tiny: Any, sessions: Any) -> None:
    """In one line; one token less is taken."""
    with pytest.raises(UsageError, match=r"a prompt of 32 tokens, with a context of 32\. Legal: up to 31 tokens"):
        shifting.generate(sessions[0], tiny.ids[:32], 5, shift=Shift(32))
    assert len(shifting.generate(sessions[0], tiny.ids[:31], 5, shift=Shift(32))) == 5


def test_each_token_runs_again_once_a_half(tiny: Any, sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred tokens past the context take four shifts of 31 rows, not a hundred."""
    session, rows = sessions[0], list[int]()
    run = session._run
    monkeypatch.setattr(session, "_run", lambda ids: (rows.append(len(ids)), run(ids))[1])
    session.reset()
    shifting.generate(session, tiny.ids[:4], CONTEXT - 4 + 100, shift=Shift(CONTEXT, 2))
    assert rows == [4, 33, 33, 33, 33]
