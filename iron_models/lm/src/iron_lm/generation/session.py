"""`Session`: a decoder compiled and running, with what its caches hold."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from iron_core.errors import CallError, NotFinite, UsageError
from iron_core.turn import Turn
from iron_lm.finite import not_finite
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.snapshots import Snapshots
from iron_lm.generation.token_ids import token_ids
from iron_lm.parts.decoder import Decoder

if TYPE_CHECKING:
    from iron_lm.generation.drafts import Drafts
    from iron_lm.generation.grammar import Constraint
    from iron_lm.generation.speculation import Passes, Speculation

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Made = TypeVar("_Made")


def _alone(method: _Method) -> _Method:
    """A method of a session that no other runs beside: other threads wait, and what it calls is refused."""

    @functools.wraps(method)
    def turned(self: Session, *args: Any, **keywords: Any) -> Any:
        with self._turn:
            if self._turn.busy:
                raise CallError(
                    f"Session.{method.__name__}() inside an answer of the same session; end that (on_token says True), then call it."
                )
            self._turn.busy = True
            try:
                return method(self, *args, **keywords)
            finally:
                self._turn.busy = False

    return cast(_Method, turned)


class Session:
    """A decoder on a backend. `held` are the tokens whose keys and values are in the caches.

    Threads may share it: each answer is whole, one after the other. A prompt runs in chunks that begin on the model's `grid`. What a
    new prompt shares with `held` is kept, up to the last place there where a chunk may begin; a prompt of one token more is one decode
    step. Where caches slide, that is so within what they still hold; a prompt that differs before it runs from its start. Of states that
    cannot go back there are copies where chunks begin (`snapshots`): what lies behind the one that is put back runs again.
    With a `speculation` several tokens are read in one step: those of an answer that were guessed, and what a prompt has more than is
    held, where that is few.
    """

    def __init__(self, model: Decoder, **options: Any) -> None:
        self.model = model
        self.compiled = model.compile(**options)
        self.compiled.add_before_loop(ids=((model.run.prefill_chunk,), np.int32))
        self.held: list[int] = []
        self.snapshots = Snapshots(self.compiled, model.recurrent) if model.recurrent else None
        self.base = 0  # the first token in the caches that slide
        self._caches = model.caches
        self.drafts: Drafts | None = None
        self._turn = Turn(f"a session of {type(model).__name__}")
        self._sampler: Sampler | None = None

    def load(self) -> None:
        """Be ready for the first token: weights, caches and draws are in their places. CallError on a backend that has none."""
        self.compiled.load()
        self.sample(Sampler())

    @_alone
    def reset(self) -> None:
        """Forget the history. The caches' old content is overwritten before it is read."""
        self.held = []

    def forget(self) -> None:
        """Have the caches hold nothing, those that slide and states that cannot go back too."""
        self.held, self.base = [], self.model.run.max_seq_len
        if self.snapshots is not None:
            self.snapshots.become(None, {})

    @_alone
    def alone(self, work: Callable[[Session], _Made]) -> _Made:
        """What `work` makes of the session, which nobody else runs meanwhile."""
        return work(self)

    def checked(self, ids: Sequence[int]) -> list[int]:
        """Token ids as a list. CallError for what is no whole number, BoundsError for one outside the vocabulary."""
        return token_ids(ids, self.model.vocab_size)

    def _fitting(self, ids: Sequence[int], count: int) -> list[int]:
        """Token ids, behind which so many more fit."""
        ids, most = self.checked(ids), self.model.run.max_seq_len
        if len(ids) + count > most:
            raise UsageError(
                f"the prompt has {len(ids)} tokens and num_tokens={count}: together over max_seq_len={most}. "
                f"Legal: num_tokens up to {max(0, most - len(ids))}, or a larger --max-seq-len."
            )
        return ids

    @_alone
    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """float32 (vocab,): the logits after `ids`."""
        return self._run(self.checked(ids))[0]

    @_alone
    def generate(
        self,
        ids: Sequence[int],
        count: int,
        sampler: Sampler | None = None,
        on_token: Callable[[int], bool] | None = None,
        stop: Sequence[int] = (),
        constraint: Constraint | None = None,
        speculation: Speculation | None = None,
    ) -> list[int]:
        """Up to `count` tokens after `ids`. Ends early at a token of `stop` (not returned), where `on_token` says True, or where
        `constraint`, which says what may come next and goes on with what comes, lets nothing follow. speculation: guesses tokens, which
        are read together; the answer is the same without, token by token, whatever the sampler and its seed.

        UsageError if prompt and answer do not fit the caches, or where guesses cannot be taken back. CheckpointError where a step's
        logits are not finite, after `on_token` had the tokens before it. Tokens after the last one returned are not kept.
        """
        ids = self._fitting(ids, count)
        if count < 1 or (constraint is not None and constraint.ended):
            return []
        sampler = sampler or Sampler()
        answer: list[int] = []

        def take(token: int) -> bool:
            if token in stop:
                return True
            answer.append(token)
            return bool(on_token(token)) if on_token is not None else False

        if speculation is not None:
            return self._guess(ids, count, speculation.start(self, sampler, stop, constraint), take, answer)
        if constraint is not None or not sampler.on_device:
            return self._choose_here(ids, count, sampler, take, answer, constraint)
        self.sample(sampler)
        _, carried = self._run(ids)
        stopped = take(carried["token"])
        try:
            if not stopped:
                self._loop(carried["token"], carried["position"], count - 1, take)
        finally:
            # A token is in the caches once a step has taken it in; the last of the answer is not.
            self.held = [*ids, *answer[:-1]]
        return answer

    def _loop(self, token: int, position: int, left: int, take: Callable[[int], bool]) -> None:
        """Up to `left` steps of the graph's own loop from a token at its position on, until `take` says True of what one gave."""
        stopped = False

        def on_step(_: int, now: dict[str, int]) -> bool:
            nonlocal stopped
            stopped = take(now["token"])
            return stopped

        try:
            while left and not stopped:
                steps = self._steps(position, left)
                self.slide_to(position)
                with self._moving(position) as moved:
                    carried = self.compiled.loop(steps, on_step, token=token, chunk=0, rows=0, **self.model.where(position))
                    moved(carried["position"])
                token, position = carried["token"], carried["position"]
                left -= steps
        except NotFinite:
            raise not_finite("the logits are") from None

    def tokens(
        self,
        ids: Sequence[int],
        count: int,
        sampler: Sampler | None = None,
        stop: Sequence[int] = (),
        constraint: Constraint | None = None,
        speculation: Speculation | None = None,
    ) -> Iterator[int]:
        """What `generate` returns, one by one as they are asked for. Between two of them the session is free for anything else."""
        if speculation is not None:
            yield from self._guessed(list(ids), count, self._passes(speculation, sampler, stop, constraint))
            return
        history = list(ids)
        for _ in range(count):
            said = self.generate(history, 1, sampler, stop=stop, constraint=constraint)
            if not said:
                return
            history += said
            yield said[0]

    @_alone
    def _passes(self, speculation: Speculation, sampler: Sampler | None, stop: Sequence[int], constraint: Constraint | None) -> Passes:
        return speculation.start(self, sampler or Sampler(), stop, constraint)

    @_alone
    def _pass(self, passes: Passes, ids: Sequence[int], most: int) -> list[int]:
        return passes.next(self._fitting(ids, most), most)

    def _guessed(self, history: list[int], count: int, passes: Passes) -> Iterator[int]:
        """`tokens` where some are guessed."""
        said = list[int]()
        for left in range(count, 0, -1):
            said = said or self._pass(passes, history, left)
            if not said or said[0] in passes.stop:
                return
            history.append(said[0])
            yield said.pop(0)

    def _guess(self, ids: list[int], count: int, passes: Passes, take: Callable[[int], bool], answer: list[int]) -> list[int]:
        """`generate` where tokens are guessed."""
        try:
            while said := passes.next([*ids, *answer], count - len(answer)):
                if any(map(take, said)) or self._unguessed(ids, count, passes, take, answer):
                    break
            return answer
        finally:  # what was read behind the answer is not kept, nor its last token
            whole = [*ids, *answer]
            self.held = self.held[: min(shared(self.held, whole), len(whole) - 1)]

    def _unguessed(self, ids: list[int], count: int, passes: Passes, take: Callable[[int], bool], answer: list[int]) -> bool:
        """Go on by the graph's own loop until something is guessed, where it draws; did `take` end the answer?"""
        history, stopped = [*ids, *answer], False
        if len(answer) == count or not passes.alone(history, count - len(answer)):
            return False

        def on_step(token: int) -> bool:
            nonlocal stopped
            stopped = take(token)
            history.append(token)
            passes.speculation.judged(0, 0, 1)
            return stopped or not passes.alone(history, count - len(answer))

        try:
            self._loop(history[-1], len(history) - 1, count - len(answer), on_step)
        finally:
            self.held = [*ids, *answer[:-1]]
        return stopped

    def _choose_here(
        self, ids: list[int], count: int, sampler: Sampler, take: Callable[[int], bool], answer: list[int], constraint: Constraint | None
    ) -> list[int]:
        """`generate` where the graph cannot choose: each step's logits come back, and the sampler chooses."""
        history = list(ids)
        while True:
            if constraint is not None and not sampler.greedy:
                constraint.look()  # beside the graph
            logits, _ = self._run(history)
            token = int(logits.argmax())
            if constraint is None or not sampler.greedy or not constraint.sure(token):
                allowed = None if constraint is None else constraint.allowed()
                token = sampler.choose(logits, len(history) - 1, history, allowed)
            if constraint is not None:
                constraint.take(token)
            if take(token) or len(answer) == count or (constraint is not None and constraint.ended):
                return answer
            history.append(token)

    def read(self, history: list[int], guesses: list[int]) -> tuple[np.ndarray, int]:
        """float32 (guesses + 1, vocab): the logits after `history`, and after each of the guesses behind it; and what the graph draws
        from the last."""
        if not guesses:
            logits, drawn = self._run(history)
            return logits.reshape(1, -1), drawn["token"]
        rows, carried = self.drafting().step([*history, *guesses], len(guesses) + 1)
        return rows, carried.token

    def drafting(self) -> Drafts:
        """What reads several tokens in a step. UsageError for a model with states that cannot go back."""
        from iron_lm.generation.drafts import Drafts  # here: most sessions read none

        self.drafts = self.drafts or Drafts(self)
        return self.drafts

    def sample(self, sampler: Sampler) -> None:
        """Choose tokens as this sampler says from now on."""
        if sampler != self._sampler:
            self._sampler = None  # while the rows are half written
            self.compiled.write(self.model.draws, sampler.rows(self.model.run.max_seq_len))
            self._sampler = sampler

    def _run(self, ids: list[int]) -> tuple[np.ndarray, dict[str, int]]:
        """Bring the caches to hold `ids`; the logits after them, and the token drawn and next position."""
        run = self.model.run
        if not 1 <= len(ids) <= run.max_seq_len:
            raise UsageError(f"a prompt of {len(ids)} tokens; legal: 1 to max_seq_len={run.max_seq_len}.")
        if self._sampler is None:
            self.sample(Sampler())
        same = self.standing(ids)
        if self.snapshots is not None:
            self.snapshots.forget(same)
        if same == len(self.held) == len(ids) - 1 and same and (self.snapshots is None or self.snapshots.at == same):
            self.slide_to(same)
            with self._moving(same) as moved:
                logits, carried = self.compiled(token=ids[-1], chunk=0, rows=0, **self.model.where(same))
                moved(len(ids))
        elif self.drafts is not None and self.drafts.reach(same, len(ids)):
            rows, carried = self.drafts.step(ids, len(ids) - same)
            logits = rows[-1]
        else:
            first = min(same, len(ids) - 1) // self.model.grid * self.model.grid
            if self.snapshots is not None:
                first = self.snapshots.back(first, same)
            last = run.max_seq_len - run.prefill_chunk  # where a chunk may begin
            for start in (min(start, last) for start in range(first, len(ids), run.prefill_chunk)):
                self.held = ids[:start]  # what stands whatever becomes of this chunk, Ctrl-C within it too
                part = ids[start : start + run.prefill_chunk]
                row = np.zeros(run.prefill_chunk, np.int32)
                row[: len(part)] = part
                self.slide_to(start)
                with self._moving(start) as moved:
                    values = dict(token=0, chunk=start // run.prefill_step, rows=len(part))
                    logits, carried = self.compiled(row, **values, **self.model.where(start + len(part) - 1))
                    moved(start + len(part))
        if not np.isfinite(logits).all():
            self.held = []
            raise not_finite("the logits are")
        self.held = list(ids)
        return logits, vars(carried)

    def standing(self, ids: list[int]) -> int:
        """How many tokens of these the caches hold, as far as they can go back."""
        common = shared(self.held, ids)
        # Where nothing says what stands of a history, every prompt runs from its start; so it does where what it sees is held no longer.
        same = min((cache.rewind(common) for cache in self._caches), default=0)
        return 0 if self.model.base(min(same, len(ids) - 1)) < self.base else same

    @contextmanager
    def _moving(self, position: int) -> Iterator[Callable[[int], None]]:
        """While the states of `position` tokens become those of more: of how many, is said at the end. Copied before, where a chunk
        begins; whatever ends it without a word leaves none that are known."""
        kept = self.snapshots
        if kept is None:
            yield lambda _: None
            return
        if position % self.model.run.prefill_chunk == 0:
            kept.keep(position)
        kept.at = None

        def moved(to: int) -> None:
            kept.at = to

        yield moved

    def _steps(self, position: int, most: int) -> int:
        """Of `most` decode steps from `position` on, how many run before caches slide, or states are copied."""
        if self.snapshots is None and self.model.base(position + most - 1) == self.model.base(position):
            return most
        chunk = self.model.run.prefill_chunk
        return min(most, chunk - position % chunk)

    def slide_to(self, position: int) -> None:
        """Have caches that slide where computing `position` needs them."""
        base, rows = self.model.base(position), self.model.base(position) - self.base
        if rows > 0:
            self.base = self.model.run.max_seq_len  # whatever becomes of the move: until it is done they hold nothing
            self.model.slide(self.compiled, rows)
        self.base = base


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    n = min(len(a), len(b))
    if list(a[:n]) == list(b[:n]):  # an answer that goes on, one token a call, is not walked through in Python each time
        return n
    return next(i for i in range(n) if a[i] != b[i])
