"""`Guessing`: what guesses the tokens that a model then reads together, the text itself or a smaller model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from iron_core.errors import UsageError, printable
from iron_lm.generation.session import Session
from iron_lm.generation.speculation import DraftModel, PromptLookup, Speculation
from iron_lm.loading import Loaded
from iron_lm.run import DRAFT_TOKENS
from iron_lm.tunables import tuned


@attrs.frozen
class Guessing:
    """draft: the smaller model, None where what stands in the text already is looked up; most: tokens guessed at once."""

    draft: Loaded | None = None
    most: int = DRAFT_TOKENS

    def compiled(self, session: Session, **options: Any) -> Speculation:
        """Ready to guess for a session, and it to read guesses. options: of `Graph.compile`."""
        session.drafting()
        if self.draft is None:
            return Speculation(PromptLookup(), self.most)
        with tuned(self.draft.family, options.get("backend"), options.get("dev")):
            smaller = Session(self.draft.model(), cache_key=self.draft.cache_key, **options)
        smaller.load()
        return Speculation(DraftModel(smaller), self.most)


def guessing(
    loaded: Loaded, lookup: Any, draft: Any, draft_tokens: Any, opened: Callable[[Any], Loaded], named: Callable[[str], str] = str
) -> Guessing | None:
    """What is asked to guess for a model; None for nothing. opened: loads a draft; named: what each option is called, for messages.

    UsageError for what cannot be: both, numbers of tokens without either, a model whose states cannot go back, a draft of other tokens.
    CheckpointError for one that cannot be read."""
    if not isinstance(lookup, bool):
        raise UsageError(f"{named('lookup')}={lookup!r}; legal: True or False.")
    if lookup and draft is not None:
        raise UsageError(f"{named('lookup')} and {named('draft')} exclude each other; leave one out.")
    if not lookup and draft is None:
        if draft_tokens is not None:
            raise UsageError(f"{named('draft_tokens')} is for {named('lookup')} or {named('draft')}.")
        return None
    _goes_back(loaded, named("lookup" if lookup else "draft"))
    most = DRAFT_TOKENS if draft_tokens is None else draft_tokens
    Speculation(PromptLookup(), most)  # which says what numbers can be
    return Guessing(None if lookup else _fitting(opened(draft), loaded, named("draft")), most)


def _goes_back(loaded: Loaded, option: str) -> None:
    if loaded.build().recurrent:
        raise UsageError(f"{option}: what is guessed must be taken back, and the recurrent states of {loaded.family.name} cannot go back.")


def _fitting(draft: Loaded, loaded: Loaded, option: str) -> Loaded:
    """A draft that has the tokens of a model, with caches no longer than it needs."""
    path = "the draft" if draft.checkpoint is None else draft.checkpoint.path
    if draft.config.encodes:
        raise UsageError(f"{option} {path}: {draft.family.name} encodes texts and continues none.")
    _goes_back(draft, f"{option} {path}")
    ours, theirs = loaded.tokenizer, draft.tokenizer
    if ours is None or theirs is None:
        if loaded.config.vocab_size != draft.config.vocab_size:
            raise UsageError(
                f"{option} {path}: a vocabulary of {draft.config.vocab_size} tokens, where the model's has {loaded.config.vocab_size}. "
                "Legal: a draft of the same vocabulary."
            )
    else:
        for id in range(min(ours.vocab_size, theirs.vocab_size)):
            if ours.token(id) != theirs.token(id):
                its, own = (printable(repr(tokens.token(id)), 40) for tokens in (theirs, ours))
                raise UsageError(
                    f"{option} {path}: another vocabulary, of {theirs.vocab_size} tokens to the model's {ours.vocab_size}: "
                    f"token {id} is {its}, the model's {own}. Legal: a draft of the same vocabulary."
                )
    chunk = draft.run.prefill_chunk
    rows = min(draft.run.max_seq_len, -(-loaded.context // chunk) * chunk)
    return attrs.evolve(draft, run=attrs.evolve(draft.run, max_seq_len=rows), context=min(draft.context, loaded.context))
