"""Requests side by side: each answer is the one it has alone, whatever arrives, ends, is cancelled or lacks pages beside it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iron_core.errors import BoundsError, CallError, CheckpointError, UsageError
from iron_lm.generation.batch import Batch
from iron_lm.generation.paged import Span
from iron_lm.generation.request import Request
from iron_lm.generation.sampler import Sampler

VOCAB, CONTEXT = 8, 40
POISON = VOCAB - 1  # what it is read in has logits that are not finite from there on


def _row(before: Sequence[int], token: int) -> int:
    """What a place holds: of its token and of all rows before it, as keys and values are."""
    return hash((tuple(before), token))


def _logits(rows: Sequence[int], poisoned: bool) -> np.ndarray:
    found = np.random.default_rng(hash(tuple(rows)) % (1 << 32)).normal(size=VOCAB).astype(np.float32)
    found[POISON] -= 3  # rarely chosen
    return np.full(VOCAB, np.nan, np.float32) if poisoned else found


class Rows:
    """A model whose rows are numbers: they tell whether a page is another's, was not copied, or is of before."""

    def __init__(self, pages: int = 12, page: int = 4, rows: int = 6, sequences: int = 4) -> None:
        self.pages, self.page, self.rows, self.sequences = pages, page, rows, sequences
        self.vocab_size, self.max_seq_len = VOCAB, CONTEXT
        self.pool = np.zeros((pages, page, 2), np.int64)  # of each place: what it holds, and whether poison is among it
        self.passes: list[list[Span]] = []

    @property
    def computed(self) -> int:
        return sum(len(span.ids) for spans in self.passes for span in spans)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            self.pool[target] = self.pool[source]

    def read(self, spans: Sequence[Span]) -> np.ndarray:
        assert 1 <= len(spans) <= self.sequences and sum(len(span.ids) for span in spans) <= self.rows
        self.passes.append(list(spans))
        at = np.zeros(len(spans), int)
        while any(at[n] < len(span.ids) for n, span in enumerate(spans)):  # all spans a row at a time, as they run together
            for n, span in enumerate(spans):
                if at[n] < len(span.ids):
                    self._write(span, int(at[n]))
                    at[n] += 1
        return np.stack([self._last(span) for span in spans])

    def _places(self, span: Span, length: int) -> np.ndarray:
        return np.concatenate([self.pool[page] for page in span.pages])[:length]

    def _write(self, span: Span, n: int) -> None:
        position = span.first + n
        before = self._places(span, position)
        poisoned = span.ids[n] == POISON or (len(before) and bool(before[-1, 1]))
        self.pool[span.pages[position // self.page], position % self.page] = _row(before[:, 0].tolist(), span.ids[n]), poisoned

    def _last(self, span: Span) -> np.ndarray:
        places = self._places(span, span.first + len(span.ids))
        return _logits(places[:, 0].tolist(), bool(places[-1, 1]))


@attrs.frozen
class Asked:
    ids: tuple[int, ...]
    count: int
    sampler: Sampler
    stop: tuple[int, ...] = ()
    allowed: tuple[int, ...] | None = None


class Only:
    """A constraint: one of these tokens, and after four of them nothing."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self._allowed, self._left = np.isin(np.arange(VOCAB), allowed), 4

    def look(self) -> None: ...

    def allowed(self) -> np.ndarray:
        return self._allowed

    def sure(self, token: int) -> bool:
        return bool(self._allowed[token]) and token != 1  # as if something hung on that one

    def take(self, token: int) -> None:
        assert self._allowed[token]
        self._left -= 1

    @property
    def ended(self) -> bool:
        return self._left == 0


def _alone(asked: Asked) -> tuple[list[int], bool]:
    """The answer of the same model without pages, and whether its logits stopped being finite."""
    rows: list[int] = []
    history, answer, left = list(asked.ids), [], 4
    choose = asked.sampler.chooser(CONTEXT)
    for token in history:
        rows.append(_row(rows, token))
    while True:
        if POISON in history:
            return answer, True
        allowed = None if asked.allowed is None else np.isin(np.arange(VOCAB), asked.allowed)
        token = choose(_logits(rows, False), len(history) - 1, history, allowed)
        if token in asked.stop:
            return answer, False
        answer.append(token)
        left -= 1
        if len(answer) == asked.count or (asked.allowed is not None and not left):
            return answer, False
        history.append(token)
        rows.append(_row(rows, token))


def _submit(batch: Batch, asked: Asked, on_token=None) -> Request:
    constraint = None if asked.allowed is None else Only(asked.allowed)
    return batch.submit(asked.ids, asked.count, asked.sampler, on_token, asked.stop, constraint)


def _is_its_own(request: Request, asked: Asked) -> None:
    answer, poisoned = _alone(asked)
    assert request.ended and request.answer == answer
    if poisoned:
        assert isinstance(request.error, CheckpointError) and "logits are not finite" in str(request.error)
    else:
        assert request.error is None


SAMPLERS = (
    Sampler(),
    Sampler(temperature=1.0, seed=3),
    Sampler(temperature=0.8, top_p=0.9, seed=5),
    Sampler(repetition_penalty=1.3, frequency_penalty=0.2),
    Sampler(temperature=1.0, logit_bias={2: 1.0}, seed=7),
)
#: Of few tokens, so that prompts share beginnings of all lengths; poison only where a test asks for it.
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=18).map(tuple)
ASKED = st.builds(
    Asked,
    ids=PROMPTS | st.builds(lambda a, n: (*a, *range(n)), PROMPTS, st.integers(1, VOCAB)),
    count=st.integers(1, 12),
    sampler=st.sampled_from(SAMPLERS),
    stop=st.sampled_from([(), (3,), (0, 5)]),
    allowed=st.none() | st.sampled_from([(1, 2, 3), (4,)]),
)


class Interleavings(RuleBasedStateMachine):
    """Requests arrive, run, end by themselves or are cancelled; there are too few pages for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Rows()
        self.batch = Batch(self.model)
        self.asked: list[tuple[Request, Asked]] = []
        self.cancelled: list[tuple[Request, Asked]] = []
        self.quiet = 0  # passes in a row that ran nothing

    @rule(asked=ASKED)
    def arrives(self, asked: Asked) -> None:
        self.asked.append((_submit(self.batch, asked), asked))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def arrives_again(self, data: st.DataObject) -> None:
        """The same prompt, chosen from otherwise."""
        asked = attrs.evolve(data.draw(st.sampled_from(self.asked))[1], sampler=data.draw(st.sampled_from(SAMPLERS)))
        self.asked.append((_submit(self.batch, asked), asked))

    @precondition(lambda self: any(not request.ended for request, _ in self.asked))
    @rule(passes=st.integers(1, 6))
    def runs(self, passes: int) -> None:
        for _ in range(passes):
            before = len(self.model.passes)
            self.batch.step()
            self.quiet = 0 if len(self.model.passes) > before else self.quiet + 1
            assert self.quiet < 2 or all(request.ended for request, _ in self.asked)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def is_cancelled(self, data: st.DataObject) -> None:
        request, asked = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        request.cancel()
        self.cancelled.append((request, asked))

    @invariant()
    def answers_are_those_of_each_alone(self) -> None:
        for request, asked in self.asked:
            if request.ended:
                _is_its_own(request, asked)
        for request, asked in self.cancelled:
            assert request.ended and request.answer == _alone(asked)[0][: len(request.answer)]

    @invariant()
    def no_page_is_lost(self) -> None:
        pages = self.batch._pages
        held = {page for request in self.batch._running() for page in request.table.pages}
        assert pages.available == self.model.pages - len(held)

    def teardown(self) -> None:
        for _ in range(2000):
            if not self.batch.step():
                break
        for request, asked in self.asked:
            _is_its_own(request, asked)
        assert self.batch._pages.available == self.model.pages


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)


@settings(max_examples=60, deadline=None)
@given(asked=st.lists(ASKED, min_size=1, max_size=7), pages=st.integers(10, 14), rows=st.integers(1, 30), sequences=st.integers(1, 8))
def test_any_pool_and_any_pass_give_the_same(asked: list[Asked], pages: int, rows: int, sequences: int) -> None:
    """Pools that hold one request and little more, passes of one row and of many."""
    batch = Batch(Rows(pages, rows=rows, sequences=sequences))
    requests = [_submit(batch, each) for each in asked]
    batch.run()
    for request, each in zip(requests, asked, strict=True):
        _is_its_own(request, each)


def test_a_prefix_of_requests_that_arrive_together_is_computed_once() -> None:
    """The newer wait for the oldest, and go on from its rows, in the middle of a page too."""
    model = Rows(pages=40, rows=8, sequences=8)
    batch = Batch(model)
    prompt = (1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2)
    requests = [batch.submit((*prompt, n), 2) for n in range(4)]
    batch.run()
    assert all(len(request.answer) == 2 for request in requests)
    assert model.computed == len(prompt) + 2 * 4


def test_full_pages_outlive_their_request() -> None:
    """Who comes later goes on from them."""
    model = Rows(pages=40, rows=8)
    batch = Batch(model)
    prompt = (1, 2, 3, 4, 5, 6, 1, 2, 3, 4)
    batch.submit(prompt, 1).result()
    before = model.computed
    assert batch.submit((*prompt, 5), 1).result() == _alone(Asked((*prompt, 5), 1, Sampler()))[0]
    assert model.computed == before + len(prompt) + 1 - 8


def test_one_prompt_answered_many_times_is_computed_and_stored_once() -> None:
    """Each answer beside the first costs the prompt's last row, and pages of its own from the one it writes in."""
    model = Rows(pages=40, rows=64, sequences=8)
    batch = Batch(model)
    prompt = tuple(range(6)) * 3  # 18 tokens: four pages of four, and two rows
    asked = [Asked(prompt, 3, Sampler(temperature=1.0, seed=seed)) for seed in range(5)]
    requests = [_submit(batch, each) for each in asked]
    batch.step()
    batch.step()
    assert batch._pages.available == 40 - 4 - 5
    batch.run()
    assert model.computed == 18 + 4 + 2 * 5  # the prompt; its last row for the others; two tokens each
    for request, each in zip(requests, asked, strict=True):
        _is_its_own(request, each)


def test_requests_that_share_little_do_not_wait() -> None:
    """A first token that all texts have is no reason to."""
    model = Rows(rows=32)
    batch = Batch(model)
    for n in range(1, 4):
        batch.submit((0, *(n,) * 6), 1)
    batch.step()
    assert len(model.passes[0]) == 3


def test_a_sequence_that_goes_on_does_not_wait_for_prompts() -> None:
    """Every pass has a row for it, whatever is left of a long prompt beside it."""
    model = Rows(pages=40, rows=4)
    batch = Batch(model)
    short = batch.submit((1, 2), 8)
    batch.step()
    batch.submit((3,) * 20, 1)
    for n in range(2, 6):
        batch.step()
        assert len(short.answer) == n and len(model.passes[-1]) == 2


def test_pages_that_are_short_are_the_older_ones() -> None:
    """The newest lets go of its pages, waits, and answers as if it never had."""
    model = Rows(pages=5, rows=8)
    batch = Batch(model)
    asked = [Asked((1, 2, 3, 4, 5), 10, Sampler()), Asked((2, 3, 4, 5), 10, Sampler(temperature=1.0, seed=1))]
    old, new = (_submit(batch, each) for each in asked)
    waited = 0
    while batch.step():
        assert old.ended or old.table is not None
        waited += bool(new.answer) and new.table is None
    assert waited and old.ended
    for request, each in zip((old, new), asked, strict=True):
        _is_its_own(request, each)


def test_logits_that_are_not_finite_end_one_request() -> None:
    """The others go on, and nobody goes on from what it computed."""
    model = Rows(pages=40, rows=32, sequences=8)
    batch = Batch(model)
    bad = [POISON, 1, 2, 3, 4, 5, 6, 1, 2]
    asked = [Asked(tuple(ids), 3, Sampler()) for ids in ([1, 2, 3], bad, [4, 5], bad)]
    requests = [_submit(batch, each) for each in asked]
    batch.run()
    for request, each in zip(requests, asked, strict=True):
        _is_its_own(request, each)
    with pytest.raises(CheckpointError, match="not finite"):
        requests[1].result()
    assert not batch._pages.open(bad).pages


def test_an_iterator_streams_while_all_go_on() -> None:
    """One that is left early cancels its request; the others lose nothing."""
    batch = Batch(Rows())
    asked = [Asked((1, 2, 3), 6, Sampler()), Asked((3, 2), 6, Sampler(temperature=1.0, seed=2))]
    first, second = (_submit(batch, each) for each in asked)
    stream = first.tokens()
    assert [next(stream), next(stream)] == _alone(asked[0])[0][:2]
    assert second.answer and not second.ended
    stream.close()
    assert first.ended and first.answer == _alone(asked[0])[0][:2]
    assert second.result() == _alone(asked[1])[0]


def test_callbacks_submit_and_cancel() -> None:
    """A token of one may begin another, end one beside it, or end its own."""
    batch = Batch(Rows())
    made: list[Request] = []
    other = batch.submit((5, 4, 3), 9)
    third = Asked((1, 1, 2), 4, Sampler())

    def on_token(token: int) -> bool:
        made.append(_submit(batch, third))
        other.cancel()
        return True

    one = batch.submit((1, 2), 9, on_token=on_token)
    batch.run()
    assert len(one.answer) == 1 and other.ended and len(made) == 1
    _is_its_own(made[0], third)


def test_a_callback_that_fails_ends_its_own_request() -> None:
    """Its error is its own; a pass inside a callback is such an error."""
    batch = Batch(Rows())
    asked = Asked((4, 3, 2), 5, Sampler())
    wrong, right = batch.submit((1, 2), 5, on_token=lambda token: batch.step()), _submit(batch, asked)
    batch.run()
    assert isinstance(wrong.error, CallError) and "inside a callback" in str(wrong.error)
    _is_its_own(right, asked)


def test_an_interrupted_pass_runs_again() -> None:
    """Ctrl-C, wherever in a pass, loses no token and no page."""
    model = Rows(pages=20, rows=8)
    batch = Batch(model)
    asked = [Asked((1, 2, 3, 4, 5), 5, Sampler()), Asked((1, 2, 3, 4, 5), 5, Sampler(temperature=1.0, seed=1))]
    read, calls = model.read, [0]

    def interrupted(spans: Sequence[Span]) -> np.ndarray:
        calls[0] += 1
        found = read(spans)
        model.pool[spans[0].pages[-1]] = -1 if calls[0] % 2 else model.pool[spans[0].pages[-1]]
        if calls[0] % 2:
            raise KeyboardInterrupt
        return found

    told: list[int] = []

    def once(token: int) -> bool:
        told.append(token)
        if len(told) == 2:
            raise KeyboardInterrupt
        return False

    requests = [_submit(batch, asked[0], once), _submit(batch, asked[1])]
    model.read = interrupted  # type: ignore[method-assign]
    interrupts = 0
    while True:
        try:
            if not batch.step():
                break
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts > 3 and told == requests[0].answer
    for request, each in zip(requests, asked, strict=True):
        _is_its_own(request, each)


def test_threads_share_a_batch() -> None:
    """Each asks and streams its own; passes are taken in turns."""
    batch = Batch(Rows(pages=12, sequences=3))
    asked = [Asked((1, 2, n), 8, Sampler(temperature=1.0, seed=n)) for n in range(6)]
    got: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda n=n: got.update({n: _submit(batch, asked[n]).result()})) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == {n: _alone(asked[n])[0] for n in range(6)}


@pytest.mark.parametrize(
    ("ids", "count", "error", "says"),
    [
        ((1,) * 30, 11, UsageError, r"30 tokens and num_tokens=11: together over max_seq_len=40\. Legal: num_tokens up to 10, or a larger"),
        ((1,) * 10, 12, UsageError, r"over the 20 that 5 pages of 4 rows hold\. Legal: num_tokens up to 11, or more pages"),
        ((1, VOCAB), 2, BoundsError, r"token 8 is outside the vocabulary; legal: 0 to 7"),
        (("a",), 2, CallError, r"token ids \('a',\); legal: whole numbers"),
        ((), 2, UsageError, r"a prompt of 0 tokens; legal: 1 to max_seq_len=40"),
    ],
)
def test_what_can_never_run_is_refused(ids: tuple[int, ...], count: int, error: type[Exception], says: str) -> None:
    """Before it waits; the rule, the value and what would be legal are named. The most that is legal runs."""
    batch = Batch(Rows(pages=5))
    with pytest.raises(error, match=says):
        batch.submit(ids, count)
    assert len(batch.submit((1,) * 10, 11).result()) == 11
    assert batch.submit((1, 2), 0).result() == []
