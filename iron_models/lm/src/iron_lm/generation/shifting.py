"""`Shift`: an answer that is longer than the caches. What is kept of it runs again as a prompt: the bits are those of a new session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from iron_core.errors import UsageError
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session

if TYPE_CHECKING:
    from iron_lm.generation.grammar import Constraint
    from iron_lm.generation.speculation import Speculation


@attrs.frozen
class Shift:
    """Of a sequence that fills `context` tokens the first `keep` stay, and the newer half of the others. So each token runs again once at
    most for every half of the context, as part of a prompt. UsageError where nothing could go."""

    context: int
    keep: int = 0

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.keep <= self.context - 2:
            raise UsageError(f"keep={self.keep} of a context of {self.context} tokens. Legal: 0 to {self.context - 2}.")

    def __call__(self, ids: list[int]) -> list[int]:
        """What stays of these; all of them while there is room for one more."""
        if len(ids) < self.context:
            return ids
        return [*ids[: self.keep], *ids[self.keep + (len(ids) - self.keep + 1) // 2 :]]

    def check(self, ids: Sequence[int]) -> None:
        """UsageError for a prompt that leaves no room for a token."""
        if len(ids) >= self.context:
            raise UsageError(
                f"a prompt of {len(ids)} tokens, with a context of {self.context}. Legal: up to {self.context - 1} tokens, or a larger "
                "--max-seq-len."
            )


def kept_of(prompt: Sequence[int], keep: int | None, bos: int | None) -> int:
    """How many tokens of a prompt stay: `keep`, at most all of them; -1: all. None: the one that begins every text, where it does."""
    if keep is None:
        return int(bos is not None and list(prompt[:1]) == [bos])
    return len(prompt) if keep < 0 else min(keep, len(prompt))


def after(sampler: Sampler, shifts: int) -> Sampler:
    """What draws after so many shifts: by another seed, for places come again, and with them the draws of one seed would."""
    return attrs.evolve(sampler, seed=sampler.seed + shifts) if shifts and sampler.temperature else sampler


def generate(
    session: Session,
    ids: Sequence[int],
    count: int,
    sampler: Sampler | None = None,
    on_token: Callable[[int], bool] | None = None,
    stop: Sequence[int] = (),
    constraint: Constraint | None = None,
    speculation: Speculation | None = None,
    *,
    shift: Shift,
) -> list[int]:
    """As `Session.generate`, however many tokens that are: where they fill the context, `shift` says with which ones it goes on.

    After n shifts it is what a session that never had others gives for the tokens that are left, with the seed n higher."""
    seen, answer, ended, shifts = session.checked(ids), list[int](), False, 0
    shift.check(seen)

    def take(token: int) -> bool:
        nonlocal ended
        ended = bool(on_token(token)) if on_token is not None else False
        return ended

    while True:
        room = min(count - len(answer), shift.context - len(seen))
        said = session.generate(seen, room, after(sampler or Sampler(), shifts), take, stop, constraint, speculation)
        answer += said
        if ended or len(said) < room or len(answer) >= count or (constraint is not None and constraint.ended):
            return answer
        seen, shifts = shift([*seen, *said]), shifts + 1


def tokens(
    session: Session,
    ids: Sequence[int],
    count: int,
    sampler: Sampler | None = None,
    stop: Sequence[int] = (),
    constraint: Constraint | None = None,
    speculation: Speculation | None = None,
    *,
    shift: Shift,
) -> Iterator[int]:
    """What `generate` returns, one by one as they are asked for. Between two of them the session is free for anything else."""
    seen, shifts = session.checked(ids), 0
    shift.check(seen)
    while count > 0:
        room, said = min(count, shift.context - len(seen)), list[int]()
        for token in session.tokens(seen, room, after(sampler or Sampler(), shifts), stop, constraint, speculation):
            said.append(token)
            yield token
        if len(said) < room:
            return
        seen, shifts, count = shift([*seen, *said]), shifts + 1, count - room
