"""States that cannot go back: a session puts back a copy and runs again what lies behind it; every answer is that of a run from scratch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_lm import testing
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.snapshots import Snapshots
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.tasks.chat import Chat
from iron_lm.text.template import ChatTemplate
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


@pytest.mark.parametrize(("chunk", "copies"), [(1, 3), (4, 1), (16, 2), (64, 9)])
def test_any_acts_leave_what_a_new_session_has(chunk: int, copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts that go on, or differ from any token on; answers that are whole, drawn, stopped, broken off at a token or within a chunk;
    a prompt of nothing, one that fills the context: the same bits and tokens as where nothing was before, few copies or many."""
    model = testing.tiny(Qwen35, CONFIG, max_seq_len=128)
    one, other = (Session(model.model(prefill_chunk=chunk), backend="host") for _ in range(2))
    assert one.snapshots is not None
    one.snapshots._room = copies
    rng, held, acts = np.random.default_rng(chunk), IDS[:3], ("logits", "answer", "stop", "break", "chunk", "here", "nothing", "full")
    for act in (act for _ in range(10) for act in rng.permutation(acts)):
        new = rng.integers(0, 96, rng.choice([0, 1, 2, chunk, chunk + 1, 19])).tolist()
        ids = [*held[: rng.integers(len(held) + 1)], *new][:100] or [5]
        count = 128 - len(ids) if act == "full" else int(rng.integers(1, 28))
        drawn: dict[str, Any] = dict(temperature=float(rng.integers(2)), seed=int(rng.integers(9)))
        sampler = Sampler(repetition_penalty=1.2) if act == "here" else Sampler(**drawn)
        other.reset()
        if act == "logits":
            assert np.array_equal(one.logits(ids), other.logits(ids))
        elif act == "nothing":
            with pytest.raises(UsageError, match="a prompt of 0 tokens"):
                one.logits([])
            continue
        elif act == "chunk":  # Ctrl-C while one runs: what it made of the states is not known
            with monkeypatch.context() as patch:
                patch.setattr(one, "compiled", _BreaksOff(one.compiled, int(rng.integers(1, 4))))
                try:
                    one.logits(ids)
                except KeyboardInterrupt:
                    pass
        else:
            want = other.generate(ids, count, sampler)
            if act == "stop":
                stop = want[rng.integers(count)]
                want = want[: want.index(stop)]
                assert one.generate(ids, count, sampler, stop=(stop,)) == want
            elif act == "break":
                said: list[int] = []
                most = int(rng.integers(count))

                def breaks(token: int, said: list[int] = said, most: int = most) -> bool:
                    said.append(token)
                    if len(said) > most:
                        raise KeyboardInterrupt
                    return False

                with pytest.raises(KeyboardInterrupt):
                    one.generate(ids, count, sampler, breaks)
                assert said == want[: most + 1]
            else:
                assert one.generate(ids, count, sampler) == want
            ids = [*ids, *want]
        held = ids[:100]
        assert len(one.snapshots.kept) <= copies


class _BreaksOff(_Calls):
    """Ctrl-C within one of the calls that follow: it has run, and nothing comes back of it."""

    def __init__(self, run: Any, at: int) -> None:
        super().__init__(run, [])
        self.at = at

    def __call__(self, *given: Any, **values: int) -> Any:
        found = super().__call__(*given, **values)
        if len(self.calls) == self.at:
            raise KeyboardInterrupt
        return found


class Characters:
    """A tokenizer of printable characters."""

    stop = ()

    def encode_marked(self, text: str) -> list[int]:
        return [ord(c) - 32 for c in text]

    def stream(self) -> Any:
        class Characterwise:
            def __call__(self, token: int) -> str:
                return chr(token + 32)

            def rest(self) -> str:
                return ""

        return Characterwise()


def test_a_conversation_that_was_saved_goes_on_with_the_same_answers(session: Session, tmp_path: Path) -> None:
    """What another program loads runs again from the start: no state is in the file. One message of it fills more than a chunk."""
    template = ChatTemplate("{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% endfor %}<a>")
    other = Session(session.model, backend="host")
    talks, said, letters = [], list[str](), cast(Any, Characters())
    for run in (session, other):
        talks.append(Chat(run, letters, template, Sampler(), answer=15, context=208, write=lambda _: None, say=said.append))
    session.reset()
    for line in ("hello, this is longer than one chunk", "why?", f"/save {tmp_path}/talk.json", "and then?", "so"):
        talks[0].take(line)
    assert other.snapshots is not None
    other.logits(IDS[:70])  # another conversation
    for line in (f"/load {tmp_path}/talk.json", "and then?"):
        talks[1].take(line)
    assert talks[1].messages == talks[0].messages[:-2] and len({m["content"] for m in talks[1].messages}) == 6
    assert (other.snapshots.restored, other.snapshots.reruns) == (0, 0)
    talks[1].take("so")
    assert talks[1].messages == talks[0].messages and len(said) > 2


def test_a_sampler_that_chooses_here_takes_steps(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is a step each, not a prompt."""
    session.reset()
    calls = counted(session, monkeypatch)
    assert len(session.generate(IDS[:20], 6, Sampler(repetition_penalty=1.2))) == 6
    assert [call["rows"] for call in calls] == [16, 4, 0, 0, 0, 0, 0]


class Held:
    """A compiled graph with one state of 16 bytes, and the copies that there are of it when another is made."""

    def __init__(self, most: int = 64) -> None:
        self.value, self.beside = np.zeros(4, np.float32), list[int]()
        self.state = SimpleNamespace(shape=(4,), format=SimpleNamespace(nbytes=lambda shape: 4 * shape[0]))
        self.kept = Snapshots(self, [self.state], most)

    def read(self, state: Any) -> np.ndarray:
        self.beside.append(len(self.kept.kept))
        return self.value.copy()

    def write(self, state: Any, value: np.ndarray) -> None:
        self.value = value.copy()

    def to(self, *positions: int) -> tuple[int, ...]:
        """Hold that many tokens, and be copied, one after the other."""
        for position in positions:
            self.kept.at, self.value = position, np.full(4, position, np.float32)
            self.kept.keep(position)
        return self.kept.kept


def test_copies_are_thinned_out_where_they_lie_closest() -> None:
    """Of four that have room the newest stays, and others all along the way; one goes before another is made."""
    held = Held()
    assert held.to(16, 32, 48, 64) == (16, 32, 48, 64) and held.to(80) == (32, 48, 64, 80) and held.to(96) == (32, 64, 80, 96)
    assert held.to(112) == (32, 64, 96, 112) and held.to(128) == (32, 64, 96, 128)
    assert held.beside == [0, 1, 2, 3, 3, 3, 3, 3]
    assert Held().to(10, 21, 30, 41, 52) == (10, 30, 41, 52)
    assert held.to(72) == (32, 72, 96, 128)  # of more tokens than the states have there may be some already
    held.to(*range(144, 16 * 33, 16))
    assert len(held.kept.kept) == 4 and held.kept.kept[-1] == 512 and max(np.diff([0, *held.kept.kept])) <= 320


@pytest.mark.parametrize("most", [0, 15, 16, 31])
def test_one_copy_is_kept_however_large_it_is(most: int) -> None:
    """The newest, alone in memory."""
    held = Held(most)
    assert held.to(16, 32) == (32,) and held.to(48) == (48,) and held.beside == [0, 0, 0]


def test_the_memory_of_copies_is_bounded() -> None:
    """By 256 million bytes, which the line for people tells as a number of copies."""
    one = SimpleNamespace(shape=(1,), format=SimpleNamespace(nbytes=lambda shape: 1))
    for states, room in (([one], 256_000_000), ([one] * 3, 85_333_333)):
        kept = Snapshots(None, states)
        assert kept.each == len(states) and f": 0 of at most {room} checkpoints, 0.0 MB each" in kept.line()


def test_only_states_that_are_known_are_copied() -> None:
    """Once, and none of no tokens."""
    held = Held()
    assert held.kept.at == 0 and held.to(0) == ()
    held.kept.at = None
    held.kept.keep(16)
    held.kept.at = 16
    held.kept.keep(32)
    assert held.kept.kept == () and held.to(16, 16) == (16,) and held.beside == [0]
    held.value[:] = 7
    assert held.kept.back(16) == 16 and (held.value == 7).all()  # they are there already


def test_what_is_put_back_is_counted() -> None:
    """A copy of no more tokens than are wanted is put back, else a sequence begins anew; what is kept and runs again for it is counted."""
    held = Held()
    assert held.kept.back(0) == 0 and held.to(16, 32, 48) == (16, 32, 48)
    held.kept.at = 60
    held.kept.forget(48)
    assert held.kept.back(48, 59) == 48 and held.kept.at == 48 and (held.value == 48).all()
    assert (held.kept.restored, held.kept.reruns, held.kept.again) == (1, 0, 11)
    held.kept.forget(47)
    assert held.kept.kept == (16, 32) and held.kept.back(31, 40) == 16 and (held.value == 16).all()
    assert held.kept.back(15, 10) == 0 and held.kept.at == 0
    held.kept.at = 5
    assert held.kept.back(0) == 0  # another conversation goes back to nothing
    assert (held.kept.restored, held.kept.reruns, held.kept.again) == (2, 1, 45)
    assert held.kept.line() == (
        "states that cannot go back: 2 of at most 4 checkpoints (at 16, 32 tokens), 0.0 MB each; prompts that went on from a checkpoint: "
        "2, by a rerun from the start: 1; tokens kept that ran again: 45"
    )


def test_of_many_copies_the_first_and_the_last_are_shown() -> None:
    """However long a talk is, what is said of it is short."""
    held = Held(16 * 99)
    for most, shown in ((6, "16, 32, 48, 64, 80, 96"), (7, "16, 32, ..., 96, 112"), (99, "16, 32, ..., 1568, 1584")):
        held.to(*range(16, 16 * most + 1, 16))
        assert f": {most} of at most 99 checkpoints (at {shown} tokens)" in held.kept.line()


def test_a_copy_of_one_token_is_one() -> None:
    """Chunks may be of one token."""
    held = Held()
    held.to(1, 2, 3)
    held.kept.at = 4
    assert held.kept.back(1, 3) == 1 and (held.kept.restored, held.kept.reruns, held.kept.again) == (1, 0, 2)


def test_a_session_counts_how_it_went_back() -> None:
    """Chunks of 16: to token 40 from a copy of 32, to 10 by a rerun; what goes on, a step and a new conversation do neither."""
    session = Session(testing.tiny(Qwen35, CONFIG, max_seq_len=208).model(), backend="host")
    kept = session.snapshots
    assert kept is not None
    session.logits(IDS[:60])
    session.logits(IDS[:61])
    session.reset()
    session.logits(IDS[:60])
    assert (kept.restored, kept.reruns, kept.again) == (0, 0, 0)
    session.logits([*IDS[:40], 1, 2])
    assert (kept.restored, kept.reruns, kept.again) == (1, 0, 8)
    session.logits([*IDS[:10], 1, 2])
    assert (kept.restored, kept.reruns, kept.again) == (1, 1, 18)


def test_a_model_without_such_states_keeps_no_copies() -> None:
    """Nothing is copied for others."""
    attending = attrs.evolve(CONFIG, attends=(True, True))
    assert Session(testing.tiny(Qwen35, attending).model(), backend="reference").snapshots is None
