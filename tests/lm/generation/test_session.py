"""A session that is shared: one answer at a time, whole, whoever asks."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CallError
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session


@pytest.mark.parametrize("sampler", (Sampler(), Sampler(temperature=1.0, top_p=0.9, seed=1)), ids=("by the graph", "here"))
def test_an_answer_inside_an_answer_is_refused(tiny: Any, sampler: Sampler) -> None:
    """`on_token` may not ask the session that calls it; the session then answers as if it never had."""
    session = Session(tiny.model(), backend="host")
    want = session.generate(tiny.ids[:8], 6, sampler)
    for ask in (lambda: session.generate(tiny.ids[:3], 2), lambda: session.logits(tiny.ids[:3]), session.reset):
        with pytest.raises(CallError, match=r"Session\..*\(\) inside an answer of the same session"):
            session.generate(tiny.ids[:8], 6, sampler, lambda token, ask=ask: ask())  # type: ignore[misc]
        assert session.generate(tiny.ids[:8], 6, sampler) == want


def test_threads_get_whole_answers(tiny: Any) -> None:
    """A question from another thread waits for the answer that is being given."""
    session = Session(tiny.model(), backend="host")
    want = session.generate(tiny.ids[:8], 6), session.generate(tiny.ids[3:20], 6)
    got: list[Any] = []
    others: list[threading.Thread] = []

    def on_token(token: int) -> bool:
        if not others:
            others.append(threading.Thread(target=lambda: got.append(session.generate(tiny.ids[3:20], 6)), daemon=True))
            others[0].start()
            others[0].join(0.15)
            assert not got
        return False

    assert session.generate(tiny.ids[:8], 6, None, on_token) == want[0]
    others[0].join(60)
    assert got == [want[1]]


@pytest.mark.parametrize("ends", ("by count", "by a stop token", "by on_token"))
@pytest.mark.parametrize("sampler", (Sampler(), Sampler(temperature=1.0, top_p=0.9, seed=1)), ids=("by the graph", "here"))
def test_what_follows_an_answer_sees_all_of_it(tiny: Any, sampler: Sampler, ends: str) -> None:
    """However it ended, its last token was not read yet: the caches hold those before, and the next turn reads it."""
    ids = tiny.ids[:8]
    session, fresh = Session(tiny.model(), backend="host"), Session(tiny.model(), backend="host")
    said = session.generate(ids, 6, sampler)
    session.reset()
    told: list[int] = []
    stop = said[4:5] if ends == "by a stop token" and said[4] not in said[:4] else ()
    answer = session.generate(ids, 6, sampler, lambda token: bool(told.append(token)) or (ends == "by on_token" and len(told) == 3), stop)
    assert answer == said[: len(answer)]
    assert session.held == [*ids, *answer][: len(session.held)] and len(session.held) <= len(ids) + len(answer) - (not stop)
    following = [*ids, *answer, tiny.ids[20]]
    np.testing.assert_array_equal(session.logits(following), _grown(fresh, ids, answer, following))


def _grown(session: Session, ids: list[int], answer: list[int], following: list[int]) -> np.ndarray:
    """The logits after `following`, each token behind `ids` read as a step of its own."""
    session.logits(ids)
    for n in range(len(answer)):
        session.logits([*ids, *answer[: n + 1]])
    return session.logits(following)
