"""Speculative decoding: tokens are guessed, read in one pass, and kept as far as they are what would have been chosen."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np

from iron_core.errors import BoundsError, IronError, UsageError
from iron_lm.finite import not_finite
from iron_lm.generation.sampler import Sampler
from iron_lm.run import DRAFT_TOKENS, DRAFTED

if TYPE_CHECKING:
    from iron_lm.generation.grammar import Constraint

#: Of how many tokens the last ones are looked up, at most.
LOOKUP = 4
#: Tokens that are guessed at once where little is known of what comes of it: reading four takes hardly longer than two.
FEWEST = 3
#: Steps without a guess, at most, after guesses that were all wrong.
LONGEST_PAUSE = 31


class Proposer(Protocol):
    """Guesses what comes next. Whatever it says, the answer is the same: wrong guesses cost time."""

    def propose(self, history: Sequence[int], count: int, sampler: Sampler) -> Sequence[int]:
        """Up to `count` tokens that may follow `history`. sampler: what chooses the tokens; a guess that is drawn as it draws is
        right more often."""


class PromptLookup:
    """Guesses that what followed the same tokens before follows again (Saxena, 2023): the longest run, of `longest` tokens down to
    two, that ends the history and stands in it earlier; of several, the last one. UsageError for a length below 1."""

    def __init__(self, longest: int = LOOKUP) -> None:
        if longest < 1:
            raise UsageError(f"lookup={longest}; legal: 1 or more.")
        self.lengths = range(longest, min(1, longest - 1), -1)
        self._seen: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}  # of a run of tokens, behind its last place: but for the one that ends all

    def propose(self, history: Sequence[int], count: int, sampler: Sampler | None = None) -> list[int]:
        history = list(history)
        self._follow(history)
        for length in self.lengths:
            at = self._ends.get(tuple(history[-length:])) if len(history) > length else None
            if at is not None:
                found = history[at : at + count]
                while len(found) < count:  # it runs into itself: what is repeated goes on
                    found += found[: count - len(found)]
                return found
        return []

    def _follow(self, history: list[int]) -> None:
        """Know the runs that end before the last token."""
        known = len(self._seen)
        if history[:known] != self._seen:
            self._ends.clear()
            known = 0
        for end in range(max(1, known), len(history)):
            for length in self.lengths:
                if length <= end:
                    self._ends[tuple(history[end - length : end])] = end
        self._seen = history


class DraftModel:
    """Guesses what a smaller model of the same vocabulary would choose, by the same draws: where the two models give a token the
    same rank, the draw of a position picks the same one of both. Its session keeps in step: what was guessed wrong is taken back."""

    def __init__(self, session: Any) -> None:
        self.session = session
        session.drafting()

    def propose(self, history: Sequence[int], count: int, sampler: Sampler) -> list[int]:
        model = self.session.model
        count = min(count, model.run.max_seq_len - len(history))
        if count < 1:
            return []  # its context is the shorter one
        known = tuple((token, bias) for token, bias in sampler.logit_bias if token < model.vocab_size)
        try:
            return self.session.generate(history, count, attrs.evolve(sampler, logit_bias=known))
        except BoundsError:
            return []  # a token that it has no row for


@attrs.define
class Speculation:
    """What is guessed for one answer after another, and what came of it.

    most: tokens guessed at once. After a pass that took all of them the next has twice as many and one, after another one more than it
    took, or FEWEST; where it took none, the guesses pause, each time longer. The answer does not depend on any of that.

    passes: calls of the model; tokens: what they gave; proposed, accepted: the guesses among these.
    """

    proposer: Proposer
    most: int = DRAFT_TOKENS
    passes: int = 0
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    _size: int = attrs.field(init=False)
    _pause: int = attrs.field(init=False, default=0)
    _failed: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.most, Integral) or not 1 <= self.most < DRAFTED:
            raise UsageError(f"draft_tokens={self.most!r}; legal: 1 to {DRAFTED - 1}.")
        self._size = min(self.most, FEWEST)

    def start(self, session: Any, sampler: Sampler, stop: Sequence[int], constraint: Constraint | None) -> Passes:
        """For a new answer of a session."""
        return Passes(session, self, sampler, stop, constraint)

    def ahead(self, history: Sequence[int], room: int, sampler: Sampler, vocab_size: int) -> list[int]:
        """Up to `room` tokens guessed after `history`, up to the first that is none of the vocabulary."""
        count = min(self._size, room)
        if self._pause or count < 1:
            self._pause = max(0, self._pause - 1)
            return []
        found = [int(token) for token in self.proposer.propose(history, count, sampler)][:count]
        outside = (n for n, token in enumerate(found) if not 0 <= token < vocab_size)
        return found[: next(outside, count)]

    def judged(self, proposed: int, accepted: int, tokens: int) -> None:
        """A pass took so many of those proposed, and gave so many tokens."""
        self.passes += 1
        self.tokens += tokens
        self.proposed += proposed
        self.accepted += accepted
        if not proposed:
            return
        self._size = min(self.most, 2 * proposed + 1 if accepted == proposed else max(FEWEST, accepted + 1))
        self._failed = self._failed // 2 if accepted else self._failed + 1
        self._pause = 0 if accepted else min(LONGEST_PAUSE, 2**self._failed // 2)

    def as_dict(self) -> dict[str, float]:
        """For `--json`."""
        return dict(passes=self.passes, tokens_per_pass=self._rate, proposed=self.proposed, accepted=self.accepted)

    @property
    def _rate(self) -> float:
        return self.tokens / self.passes if self.passes else 0.0

    def line(self) -> str:
        """For people."""
        share = f" ({100 * self.accepted / self.proposed:.0f} %)" if self.proposed else ""
        return f"drafted tokens accepted: {self.accepted} of {self.proposed}{share} · {self._rate:.2f} tokens a pass"


class Passes:
    """The calls of a model that give an answer, several tokens each where guesses are right.

    A token is chosen from the logits after those before it as it would be without guesses, by the same draw; a guess is kept where it
    is that token. So the answer is the same, token by token. For a guess that is no draw (a look-up's, a greedy model's) that is
    the rejection sampling of Leviathan et al. (2023): it is kept with the probability that the model gives it, and what is chosen in
    its place is distributed as the model's other tokens.
    """

    def __init__(
        self, session: Any, speculation: Speculation, sampler: Sampler, stop: Sequence[int], constraint: Constraint | None
    ) -> None:
        self.drafts = session.drafting()
        self.session, self.speculation, self.sampler = session, speculation, sampler
        self.stop, self.constraint = stop, constraint
        self._choose = sampler.chooser(session.model.run.max_seq_len)
        self._drawn = sampler.on_device and constraint is None  # by the graph
        self._ahead: list[int] | None = None  # guessed already behind the history

    def alone(self, history: list[int], most: int) -> bool:
        """May the graph go on by itself behind `history`, for up to `most` tokens: it draws, and nothing is guessed?"""
        if not self._drawn or most < 1:
            return False
        self._ahead = self.speculation.ahead(history, min(most - 1, self.drafts.most - 1), self.sampler, self.session.model.vocab_size)
        return not self._ahead

    def next(self, history: list[int], most: int) -> list[int]:
        """What comes after `history`: of one pass, `most` tokens at most, a token of `stop` the last; none where nothing can follow."""
        session, constraint = self.session, self.constraint
        if most < 1 or (constraint is not None and constraint.ended):
            return []
        if constraint is not None:
            constraint.look()  # beside the graph
        room, guesses, self._ahead = self.drafts.room(history, most - 1), self._ahead, None
        if guesses is None:
            guesses = self.speculation.ahead(history, room, self.sampler, session.model.vocab_size)
        guesses = guesses[:room]
        if self._drawn:
            session.sample(self.sampler)
        said, (rows, drawn) = list[int](), session.read(history, guesses)
        if guesses and not np.isfinite(rows[0]).all():  # by a guess, perhaps: what is not finite reaches rows before it, at a weight of 0
            guesses, session.held = [], history[:-1]
            rows, drawn = session.read(history, guesses)
        for row, guess in zip(rows, [*guesses, None], strict=True):
            try:
                token = drawn if self._drawn and not guesses else self._chosen(row, [*history, *said])
            except IronError:
                if said:
                    break  # what came before is said first; the next pass meets it again
                session.held = []
                raise
            said.append(token)
            if token != guess or token in self.stop or (constraint is not None and constraint.ended):
                break
        session.held = [*history, *said[:-1]]
        self.speculation.judged(len(guesses), sum(map(int.__eq__, said, guesses)), len(said))
        return said

    def _chosen(self, logits: np.ndarray, history: list[int]) -> int:
        if not np.isfinite(logits).all():
            raise not_finite("the logits are")
        token = self._choose(logits, len(history) - 1, history, None if self.constraint is None else self.constraint.allowed())
        if self.constraint is not None:
            self.constraint.take(token)
        return token
