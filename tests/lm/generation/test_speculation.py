"""Speculative decoding: whatever is guessed, the answer is what it is without guesses, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import CallError, CheckpointError, UsageError
from iron_lm import testing
from iron_lm.decoder_config import DecoderConfig
from iron_lm.generation import shifting
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.shifting import Shift
from iron_lm.generation.speculation import DraftModel, PromptLookup, Speculation
from iron_lm.parts.rotary import RotaryConfig
from iron_mistral.model import Mistral

SAMPLERS = {
    "greedy": Sampler(),
    "drawn": Sampler(temperature=1.0, seed=3),
    "of many": Sampler(temperature=1.3, top_k=100, seed=3),
    "top-p": Sampler(temperature=1.0, top_p=0.9, seed=5),
    "penalty": Sampler(repetition_penalty=1.3),
    "penalties, drawn": Sampler(temperature=0.8, frequency_penalty=0.4, presence_penalty=-0.2, repeat_last_n=9, seed=2),
    "biased": Sampler(temperature=1.0, logit_bias=((3, 2.0), (7, -np.inf))),
}


@attrs.define
class Told:
    """Guesses what is known to come after `start` tokens; each token is wrong with probability `wrong`."""

    known: Sequence[int]
    start: int
    wrong: float = 0.0
    rng: Any = attrs.field(factory=lambda: np.random.default_rng(0))
    asked: int = 0

    def propose(self, history: Sequence[int], count: int, sampler: Sampler) -> list[int]:
        self.asked += 1
        said = len(history) - self.start
        return [token + int(self.rng.random() < self.wrong) for token in self.known[said : said + count]]


@pytest.fixture(scope="module")
def sessions(tiny: Any) -> tuple[Session, Session]:
    """Two of one model, in chunks of 32, with a context of 128."""
    return Session(tiny.model(), backend="host"), Session(tiny.model(), backend="host")


def proposers(known: list[int], start: int) -> dict[str, Any]:
    return {
        "look-up": PromptLookup(),
        "all right": Told(known, start),
        "half right": Told(known, start, 0.5),
        "all wrong": Told(known, start, 1.0),
        "nothing": Told([], start),
        "no token": Told([10**6] * 200, start),
        "negative": Told([-1] * 200, start),
    }


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_an_answer_is_the_same(tiny: Any, sessions: Any, sampler: Sampler) -> None:
    """Whole, and one by one, whatever chooses and whatever is guessed, up to the end of the context; what is held is the same."""
    plain, guessing = sessions
    for start, count in ((5, 60), (20, 108), (32, 1), (40, 2)):
        ids = tiny.ids[:start]
        want = plain.generate(ids, count, sampler)
        for name, proposer in proposers(want, start).items():
            for most in (1, 4, 15):
                speculation = Speculation(proposer, most)
                told: list[int] = []
                got = guessing.generate(ids, count, sampler, lambda t, told=told: told.append(t), speculation=speculation)  # type: ignore[misc]
                assert got == told == want, (name, most)
                assert guessing.held == plain.held == [*ids, *want[:-1]]
                assert speculation.tokens == count and speculation.passes + speculation.accepted == count
            guessing.reset()
            assert list(guessing.tokens(ids, count, sampler, speculation=Speculation(proposer))) == want, name


def test_right_guesses_are_read_together(tiny: Any, sessions: Any) -> None:
    """Of 15 a pass, after the first, which reads the prompt, and one of three guesses and one of seven: 61 tokens are six passes."""
    plain, guessing = sessions
    ids = tiny.ids[:10]
    want = plain.generate(ids, 1 + 4 + 8 + 16 + 16 + 16)
    speculation = Speculation(Told(want, 10), 15)
    guessing.reset()
    assert guessing.generate(ids, len(want), speculation=speculation) == want
    assert (speculation.passes, speculation.tokens, speculation.proposed, speculation.accepted) == (6, 61, 55, 55)
    assert speculation.as_dict() == dict(passes=6, tokens_per_pass=61 / 6, proposed=55, accepted=55)
    assert speculation.line() == "drafted tokens accepted: 55 of 55 (100 %) · 10.17 tokens a pass"


def test_wrong_guesses_pause(tiny: Any, sessions: Any) -> None:
    """Where nothing is right, one pass of sixteen has a guess in the end, and that is one token."""
    plain, guessing = sessions
    ids = tiny.ids[:10]
    want = plain.generate(ids, 110)
    proposer = Told(want, 10, 1.0)
    speculation = Speculation(proposer, 15)
    assert guessing.generate(ids, 110, speculation=speculation) == want
    assert speculation.accepted == 0 and speculation.proposed == 3 * proposer.asked
    assert proposer.asked <= 1 + 4 + (110 - 1 - 2 - 4 - 8) // 16 + 2


@pytest.mark.parametrize(("wrong", "calls"), [(None, 0), (1.0, 8)])
def test_where_nothing_is_guessed_the_graph_goes_on_by_itself(
    tiny: Any, sessions: Any, monkeypatch: pytest.MonkeyPatch, wrong: float | None, calls: int
) -> None:
    """The prompt is read, then one loop gives what comes before the next guesses: no call is of one token. A stop ends it."""
    plain, guessing = sessions
    ids, read, loops = tiny.ids[:10], list[int](), list[int]()
    want = plain.generate(ids, 110)
    guessing.reset()
    run, loop = guessing.compiled, guessing.compiled.loop

    class Counted:
        def __call__(self, *given: Any, **values: Any) -> Any:
            read.append(len(given[0]) if given else 1)
            return run(*given, **values)

        def loop(self, steps: int, *given: Any, **values: Any) -> Any:
            loops.append(steps)
            return loop(steps, *given, **values)

        def __getattr__(self, name: str) -> Any:
            return getattr(run, name)

    monkeypatch.setattr(guessing, "compiled", Counted())
    proposer = Told([] if wrong is None else want, 10, wrong or 0.0)
    speculation = Speculation(proposer, 15)
    assert guessing.generate(ids, 110, speculation=speculation) == want
    assert read.count(1) == 0 and len(read) == 1 + calls == 1 + speculation.proposed // 3 and 1 <= len(loops) <= 1 + calls
    ended = Speculation(Told([], 10))
    first = want.index(want[30])
    assert guessing.generate(ids, 110, stop=(want[30],), speculation=ended) == want[:first]
    assert ended.tokens == ended.passes == first + 1


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=1.0, seed=3)], ids=("greedy", "drawn"))
@pytest.mark.parametrize("ends", range(1, 20))
def test_an_answer_that_ends_within_a_pass(tiny: Any, sessions: Any, sampler: Sampler, ends: int) -> None:
    """By a stop token or by `on_token`, wherever that is among guesses: the tokens before it, and what is asked then sees these."""
    plain, guessing = sessions
    ids = tiny.ids[:12]
    want = plain.generate(ids, 40, sampler)
    for stop in ((want[ends],), ()):
        told: list[int] = []

        def on_token(token: int, told: list[int] = told, stop: Any = stop) -> bool:
            told.append(token)
            return not stop and len(told) == ends

        got = guessing.generate(ids, 40, sampler, on_token, stop, speculation=Speculation(Told(want, 12), 15))
        first = want.index(want[ends]) if stop else ends
        assert got == told == want[:first]
        assert guessing.held == [*ids, *got][: len(guessing.held)] and len(guessing.held) >= len(ids) + len(got) - 1
        if stop:
            assert list(guessing.tokens(ids, 40, sampler, stop, speculation=Speculation(Told(want, 12), 15))) == want[:first]
        following = [*ids, *got, 4, 5]
        assert np.array_equal(guessing.logits(following), plain.logits(following))


def test_an_iterator_that_is_left_early(tiny: Any, sessions: Any) -> None:
    """Between two of its tokens the session is free for another answer; it then goes on as if there had been none."""
    plain, guessing = sessions
    ids, others = tiny.ids[:12], tiny.ids[30:50]
    want = plain.generate(ids, 30), plain.generate(others, 10)
    first = guessing.tokens(ids, 30, speculation=Speculation(Told(want[0], 12), 15))
    said = [next(first) for _ in range(4)]
    assert guessing.generate(others, 10, speculation=Speculation(PromptLookup())) == want[1]
    said += [next(first) for _ in range(9)]
    assert guessing.generate(others, 10) == want[1]
    assert [*said, *first] == want[0]


def test_any_acts_leave_what_a_new_session_has(tiny: Any, sessions: Any) -> None:
    """Prompts that share a beginning with what is held, answers of any length and number of guesses, in any order."""
    plain, guessing = sessions
    rng = np.random.default_rng(7)
    held: list[int] = []
    for _ in range(60):
        stands = int(rng.integers(0, len(held) + 1))
        ids = [*held[:stands], *rng.integers(0, plain.model.vocab_size, int(rng.integers(1, 9))).tolist()][:120]
        count = int(rng.integers(1, 129 - len(ids)))
        sampler = list(SAMPLERS.values())[int(rng.integers(len(SAMPLERS)))]
        plain.reset()
        want = plain.generate(ids, count, sampler)
        speculation = Speculation(Told(want, len(ids), float(rng.choice([0, 0.2, 0.7])), rng), int(rng.integers(1, 16)))
        assert guessing.generate(ids, count, sampler, speculation=speculation) == want
        held = guessing.held
        assert held == [*ids, *want[:-1]]


def test_what_a_prompt_has_more_is_one_step(tiny: Any, sessions: Any) -> None:
    """Where it is few tokens, at whatever place; a session that guesses nothing runs the chunk they are in."""
    _, session = sessions
    fresh = Session(tiny.model(), backend="host")
    session.drafting()
    for held, end in ((3, 5), (20, 36), (30, 33), (50, 52), (100, 128)):
        ids = [*tiny.ids, *tiny.ids][:end]
        session.logits(ids[:held])
        calls: list[Any] = []
        run = session.compiled
        try:
            session.compiled = lambda *given, **values: calls.append(given) or run(*given, **values)  # type: ignore[assignment,func-returns-value]
            got = session.logits(ids).copy()
        finally:
            session.compiled = run
        assert [len(given[0]) for given in calls] == ([16] if end - held <= 16 else [32]), (held, end)
        fresh.reset()
        assert np.array_equal(got, fresh.logits(ids))


# -- caches that slide -----------------------------------------------------------------------------

SLIDING = DecoderConfig(
    vocab_size=96, hidden_size=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=48, max_positions=512,
    rotary=RotaryConfig(8, 10000.0), window=71, sliding=(True, False, True), tied=False,
)  # fmt: skip


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=1.0, seed=3)], ids=("greedy", "drawn"))
def test_caches_that_slide(sampler: Sampler) -> None:
    """Over the ends of chunks, where they move: nothing is read past one, so nothing that is taken back is gone."""
    made = testing.tiny(Mistral, SLIDING, max_seq_len=512, prefill_chunk=64)
    plain, guessing = Session(made.model(), backend="host"), Session(made.model(), backend="host")
    assert plain.model.base(500) > 0
    ids = np.random.default_rng(5).integers(0, 96, 120).tolist()
    want = plain.generate(ids, 392, sampler)
    for proposer in (Told(want, 120), Told(want, 120, 0.3), PromptLookup()):
        speculation = Speculation(proposer, 15)
        assert guessing.generate(ids, 392, sampler, speculation=speculation) == want
        assert plain.generate(ids, 392, sampler) == want and guessing.base == plain.base
        for stands in (500, 455, 440, 130):
            following = [*ids, *want][:stands]
            assert np.array_equal(guessing.logits(following), plain.logits(following))
    assert np.array_equal(guessing.logits([*ids, 3]), plain.logits([*ids, 3]))


# -- with other things -----------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=1.0, seed=3)], ids=("greedy", "drawn"))
def test_an_answer_that_outgrows_its_context(tiny: Any, sessions: Any, sampler: Sampler) -> None:
    """What is left out is the same, and what follows it."""
    plain, guessing = sessions
    shift, ids = Shift(48, 5), tiny.ids[:20]
    want = shifting.generate(plain, ids, 130, sampler, shift=shift)
    for most in (1, 8):
        got = shifting.generate(guessing, ids, 130, sampler, shift=shift, speculation=Speculation(PromptLookup(2), most))
        assert got == want
        assert list(shifting.tokens(guessing, ids, 130, sampler, shift=shift, speculation=Speculation(PromptLookup(2), most))) == want


class OneOf:
    """A constraint: a token is one of three that follow from the one before, ten times."""

    def __init__(self, size: int) -> None:
        self.size, self.taken = size, list[int]()

    def look(self) -> None:
        pass

    def allowed(self) -> np.ndarray:
        allowed = np.zeros(self.size, bool)
        last = self.taken[-1] if self.taken else 0
        allowed[[(last * 7 + n) % self.size for n in (1, 2, 5)]] = True
        return allowed

    def sure(self, token: int) -> bool:
        return bool(self.allowed()[token])

    def take(self, token: int) -> None:
        assert self.allowed()[token]
        self.taken.append(token)

    @property
    def ended(self) -> bool:
        return len(self.taken) >= 10


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_what_a_constraint_lets_follow(tiny: Any, sessions: Any, sampler: Sampler) -> None:
    """It hears of each token once, in order, and of no guess that was not taken."""
    plain, guessing = sessions
    ids, size = tiny.ids[:12], plain.model.vocab_size
    want = plain.generate(ids, 40, sampler, constraint=OneOf(size))  # type: ignore[arg-type]
    assert len(want) == 10
    for wrong in (0.0, 0.4, 1.0):
        constraint: Any = OneOf(size)
        speculation = Speculation(Told(want, 12, wrong))
        assert guessing.generate(ids, 40, sampler, constraint=constraint, speculation=speculation) == constraint.taken == want
        constraint = OneOf(size)
        assert list(guessing.tokens(ids, 40, sampler, constraint=constraint, speculation=speculation)) == constraint.taken == want


@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_logits_that_are_not_finite(tiny: Any, wrong: float) -> None:
    """The tokens before them are told, guessed or not; a guess that would have led to some and is not taken does no harm."""
    ids = tiny.ids[:5]
    whole = Session(tiny.model(), backend="host").generate(ids, 9)
    broken = next(token for token in whole[2:7] if token not in (*ids, *whole[:2]))
    model = tiny.model()
    table = np.array(model.embedding.table.data)
    table[broken] = np.nan
    model.embedding.table.data = table
    session = Session(model, backend="host")
    for _ in range(2):
        told: list[int] = []
        with pytest.raises(CheckpointError, match="the logits are not finite"):
            session.generate(ids, 9, None, lambda t, told=told: told.append(t), speculation=Speculation(Told(whole, 5, wrong)))  # type: ignore[misc]
        assert told == whole[: whole.index(broken) + 1]
    before = whole[: whole.index(broken)]
    guesses = Speculation(Told([*before, *[broken] * 9], 5))
    assert session.generate(ids, len(before), speculation=guesses) == before


def test_asking_within_an_answer_is_refused(tiny: Any, sessions: Any) -> None:
    """As without guesses."""
    _, session = sessions
    with pytest.raises(CallError, match=r"Session\.logits\(\) inside an answer"):
        session.generate(tiny.ids[:8], 6, None, lambda token: session.logits([1]), speculation=Speculation(PromptLookup()))


@pytest.mark.parametrize(("chunk", "most"), [(1, 0), (2, 1), (3, 2), (16, 15), (32, 16)])
def test_how_many_are_read_at_once(tiny: Any, chunk: int, most: int) -> None:
    """Sixteen, and fewer than a chunk has; where that is no more than one, nothing is guessed."""
    plain = Session(tiny.model(max_seq_len=96, prefill_chunk=chunk), backend="host")
    assert plain.model.run.drafted == most
    want = plain.generate(tiny.ids[:9], 20)
    speculation = Speculation(Told(want, 9), 15)
    assert plain.generate(tiny.ids[:9], 20, speculation=speculation) == want
    assert (speculation.accepted > 0) == (most > 1)


@pytest.mark.parametrize("most", [0, -1, 16, 1.5, None])
def test_numbers_of_guesses_that_cannot_be(most: Any) -> None:
    with pytest.raises(UsageError, match=r"draft_tokens=.*; legal: 1 to 15\."):
        Speculation(PromptLookup(), most)


# -- who guesses -----------------------------------------------------------------------------------


def looked_up(history: Sequence[int], count: int, longest: int) -> list[int]:
    """As PromptLookup says it: the longest run that ends the history and stands in it earlier, the last of several."""
    for length in range(longest, min(1, longest - 1), -1):
        for at in range(len(history) - 1, length - 1, -1):
            if list(history[at - length : at]) == list(history[len(history) - length :]):
                return [history[at + n % (len(history) - at)] for n in range(count)]
    return []


def test_what_followed_before_follows_again() -> None:
    """The longest run wins, then the last one; a run that goes on into itself is repeated."""
    look = PromptLookup()
    assert look.propose([1, 2, 3, 4, 9, 1, 2], 2) == [3, 4]
    assert look.propose([1, 2, 3, 5, 2, 4, 1, 2, 8, 5, 1, 2], 3) == [8, 5, 1]
    assert look.propose([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], 1) == [3], "three tokens say more than two"
    assert look.propose([5, 6, 5, 6, 5], 5) == [6, 5, 6, 5, 6]
    assert look.propose([9, 9, 9], 4) == [9, 9, 9, 9]
    assert look.propose([1, 2, 3, 1], 4) == [], "one token says too little"
    assert PromptLookup(1).propose([1, 2, 3, 1], 2) == [2, 3]
    assert look.propose([], 3) == look.propose([1], 3) == []


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_history(data: st.DataObject) -> None:
    """One that grows, goes back, and becomes another: as if each were the first."""
    longest = data.draw(st.integers(1, 5))
    look, history = PromptLookup(longest), list[int]()
    for _ in range(4):
        history = history[: data.draw(st.integers(0, len(history)))] + data.draw(st.lists(st.integers(0, 2), max_size=12))
        count = data.draw(st.integers(1, 9))
        assert look.propose(history, count) == looked_up(history, count, longest)


@pytest.mark.parametrize("longest", [0, -3])
def test_runs_that_cannot_be_looked_up(longest: int) -> None:
    with pytest.raises(UsageError, match=rf"lookup={longest}; legal: 1 or more"):
        PromptLookup(longest)


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_a_model_guesses(tiny: Any, sessions: Any, sampler: Sampler) -> None:
    """By the same draws, so that one that gives the same logits is always right; one that gives others does no harm."""
    plain, guessing = sessions
    ids = tiny.ids[:20]
    want = plain.generate(ids, 60, sampler)
    own = Speculation(DraftModel(Session(tiny.model(), backend="host")), 8)
    assert guessing.generate(ids, 60, sampler, speculation=own) == want
    assert own.accepted == own.proposed > 40
    other, table = tiny.model(), np.asarray(tiny.model().embedding.table.data)
    other.embedding.table.data = table * np.random.default_rng(0).uniform(0.95, 1.05, table.shape).astype(np.float32)
    for guesser in (other, tiny.model(max_seq_len=32)):
        speculation = Speculation(DraftModel(Session(guesser, backend="host")), 8)
        for start in (20, 12, 20):
            prompt = tiny.ids[:start]
            assert guessing.generate(prompt, 60, sampler, speculation=speculation) == plain.generate(prompt, 60, sampler)
        assert 0 < speculation.accepted <= speculation.proposed - (guesser is other)


def test_a_model_of_fewer_tokens_guesses(tiny: Any) -> None:
    """What it has no token for it does not guess behind; what is said of tokens that it has not, it does not hear."""
    made = testing.tiny(Mistral, attrs.evolve(SLIDING, vocab_size=96), max_seq_len=128)
    fewer = testing.tiny(Mistral, attrs.evolve(SLIDING, vocab_size=90), max_seq_len=128)
    plain, guessing = Session(made.model(), backend="host"), Session(made.model(), backend="host")
    sampler = Sampler(temperature=2.0, logit_bias=((95, 3.0),), seed=1)
    want = plain.generate([1, 2, 3], 60, sampler)
    assert 95 in want
    speculation = Speculation(DraftModel(Session(fewer.model(), backend="host")))
    assert guessing.generate([1, 2, 3], 60, sampler, speculation=speculation) == want
