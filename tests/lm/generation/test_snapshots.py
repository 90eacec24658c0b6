"""States that cannot go back: a session puts back a copy and runs again what lies behind it; every answer is that of a run from scratch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from iron_lm import testing
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.snapshots import Snapshots
from iron_lm.parts.rotary import RotaryConfig
from iron_qwen3_5.config import Qwen35Config
from iron_qwen3_5.model import Qwen35

CONFIG = Qwen35Config(
    vocab_size=96, hidden_size=32, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=16, intermediate_size=48, max_positions=512,
    rotary=RotaryConfig(16, 10000.0, dims=4), tied=False, attends=(False, True), key_heads=2, value_heads=4, key_dim=8, value_dim=16,
)  # fmt: skip
IDS = np.random.default_rng(5).integers(0, 96, 200).tolist()


@pytest.fixture(scope="module")
def session() -> Session:
    """On the host, where a token has the same bits in a prompt and by itself."""
    return Session(testing.tiny(Qwen35, CONFIG, max_seq_len=208).model(), backend="host")


def scratch(session: Session, ids: list[int]) -> np.ndarray:
    """Its logits from the start, other tokens having been where these are."""
    session.reset()
    session.logits(ids[::-1])
    session.reset()
    return session.logits(ids).copy()


def counted(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The calls that a session makes from now on: their per-call values."""
    calls: list[dict[str, int]] = []
    monkeypatch.setattr(session, "compiled", _Calls(session.compiled, calls))
    return calls


class _Calls:
    def __init__(self, run: Any, calls: list[dict[str, int]]) -> None:
        self.run, self.calls = run, calls

    def __call__(self, *given: Any, **values: int) -> Any:
        self.calls.append(values)
        return self.run(*given, **values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)


def test_a_prompt_that_goes_back_runs_from_a_copy(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16: what differs from token 40 on runs from 32, and what differs from 10 on from the start; one token more is a step."""
    first = [*IDS[:40], *IDS[150:170]]
    wanted = {n: scratch(session, ids) for n, ids in enumerate((first, [*IDS[:10], 5, 6], [*IDS[:60]]))}
    session.reset()
    session.logits(IDS[:60])
    calls = counted(session, monkeypatch)
    assert np.array_equal(session.logits(first), wanted[0]) and [call["chunk"] for call in calls] == [2, 3]
    calls.clear()
    assert np.array_equal(session.logits([*IDS[:10], 5, 6]), wanted[1]) and [call["chunk"] for call in calls] == [0]
    calls.clear()
    session.logits(IDS[:59])
    calls.clear()
    assert np.array_equal(session.logits(IDS[:60]), wanted[2]) and [call["rows"] for call in calls] == [0]


def test_a_turn_of_a_chat(session: Session) -> None:
    """An answer over the ends of chunks, and what is said next; an answer that is taken back."""
    assert testing.check_chat_turn(session, IDS[:21], 40, IDS[100:110]).passed
    said = session.generate(IDS[:21], 40)
    other = [*IDS[:21], *said[:19], *IDS[120:130]]
    got = session.logits(other).copy()
    assert np.array_equal(got, scratch(session, other))


def test_an_answer_that_is_stopped(session: Session) -> None:
    """By a caller, by a token that ends it, by an error: what follows is computed from what stands."""
    session.reset()
    said = session.generate(IDS[:30], 20)
    for options in (dict(on_token=lambda token: token == said[7]), dict(stop=(said[9],))):
        session.reset()
        part = session.generate(IDS[:30], 20, **options)
        got = session.logits([*IDS[:30], *part, 7]).copy()
        assert np.array_equal(got, scratch(session, [*IDS[:30], *part, 7]))

    def fails(token: int) -> bool:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        session.generate(IDS[:30], 20, on_token=fails)
    assert np.array_equal(session.generate(IDS[:30], 20), said)


def test_a_sampler_that_chooses_here_takes_steps(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is a step each, not a prompt."""
    session.reset()
    calls = counted(session, monkeypatch)
    assert len(session.generate(IDS[:20], 6, Sampler(repetition_penalty=1.2))) == 6
    assert [call["rows"] for call in calls] == [16, 4, 0, 0, 0, 0, 0]


def test_copies_are_thinned_out_where_they_lie_closest() -> None:
    """Of four that have room, over any number of chunks: the newest, and others all along the way."""
    state = SimpleNamespace(shape=(4,), format=SimpleNamespace(nbytes=lambda shape: 16))
    kept = Snapshots(SimpleNamespace(read=lambda _: np.zeros(4), write=lambda *_: None), [state], most=64)
    for position in range(16, 16 * 33, 16):
        kept.at = position
        kept.keep(position)
    assert len(kept.kept) == 4 and kept.kept[-1] == 512 and max(np.diff([0, *kept.kept])) <= 320
    kept.forget(500)
    assert len(kept.kept) == 3 and kept.back(10) == 0 and kept.back(500) == kept.kept[-1]
    assert f"copies at {kept.kept[0]}" in kept.line()


def test_a_model_without_such_states_keeps_no_copies() -> None:
    """Nothing is copied for others."""
    attending = attrs.evolve(CONFIG, attends=(True, True))
    assert Session(testing.tiny(Qwen35, attending).model(), backend="reference").snapshots is None
