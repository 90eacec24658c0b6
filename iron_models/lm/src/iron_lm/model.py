"""`load` and `Model`: a language model from Python. It continues text, answers in a conversation, and gives logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import attrs
import numpy as np

from iron_core import Backend
from iron_core.errors import UsageError, printable
from iron_lm.adapters import Asked
from iron_lm.architecture import Architecture
from iron_lm.generation import shifting
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.shifting import Shift
from iron_lm.loading import Loaded
from iron_lm.opening import opened
from iron_lm.prompts import Prompts, are_several
from iron_lm.run import PARALLEL
from iron_lm.running import Running
from iron_lm.text.answer import Answer
from iron_lm.text.stopping import stop_texts
from iron_lm.text.template import ChatTemplate
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.tunables import tuned

if TYPE_CHECKING:
    from iron_lm.embedder import Embedder
    from iron_lm.generation.grammar import Constraint, Vocabulary
    from iron_lm.generation.speculation import Speculation
    from iron_lm.generation.states import States
    from iron_lm.parallel import Parallel

#: Tokens of an answer, where nobody says how many: what a text goes on with, and most in a conversation.
TOKENS, TURN = 40, 512
_RULES = tuple(field.name for field in attrs.fields(Sampler))


class Model(Running):
    """A model loaded, and compiled for a backend. `iron_lm.load()` makes it.

    `session` runs it, token ids in and out. A conversation, or a prompt that goes on where the last one ended, is not computed
    again. Threads may share it; two answers taken in turns are right, and slower than one after the other. `speculation`: what guesses
    tokens of answers, and what came of that; None, and they come one by one. The answers are the same. `parallel`: of how many prompts
    that are given together the answers are made side by side, at most.
    """

    parallel = PARALLEL

    def __init__(self, loaded: Loaded, **options: Any) -> None:
        """options: of `Graph.compile`."""
        with tuned(loaded.family, options.get("backend"), options.get("dev")):
            self.session = Session(loaded.model(), cache_key=loaded.cache_key, **options)
        super().__init__(loaded, self.session.compiled)
        self.session.load()
        self._options = options
        self._template: ChatTemplate | None = None
        self._embedder: Embedder | None = None
        self._vocabulary: Vocabulary | None = None
        self._states: States | None = None
        self.speculation: Speculation | None = None
        self._beside: Parallel | None = None

    def of(self, loaded: Loaded) -> Model:
        """Another model, compiled as this one is."""
        return Model(loaded, **self._options)

    # -- what it does ----------------------------------------------------------------------------

    @overload
    def generate(self, prompt: str | Sequence[int], max_tokens: int = ..., **asked: Any) -> Iterator[str]: ...
    @overload
    def generate(self, prompt: Prompts, max_tokens: int = ..., **asked: Any) -> list[Iterator[str]]: ...

    def generate(
        self,
        prompt: str | Sequence[int] | Prompts,
        max_tokens: int = TOKENS,
        *,
        stop: str | Sequence[str] = (),
        schema: Mapping[str, Any] | bool | str | None = None,
        grammar: str | None = None,
        regex: str | None = None,
        shift: bool = False,
        keep: int | None = None,
        **sampling: Any,
    ) -> Iterator[str] | list[Iterator[str]]:
        """The text that follows a prompt (text, or token ids), piece by piece as it is made: an iterator. Of several prompts a list of
        them: each answer is the one of its prompt alone, all go on whichever is asked, and what prompts share is computed once.

        max_tokens: the most there are; prompt and answer fit max_seq_len, unless shift: where they fill it, the first `keep` tokens stay,
        the older half of the others is left out, and it goes on (-1: the whole prompt stays; None: what begins every text). stop: texts
        that end the answer and are no part of it. schema, grammar, regex: one of these says what the answer may be: JSON of a schema (a
        mapping, or its text), a text of a grammar (GBNF or Lark), or one that a regular expression matches whole; where max_tokens cuts
        it, it is the beginning of one. They need the package llguidance. sampling: temperature, top_k, top_p, min_p, typical_p,
        repetition_penalty, presence_penalty, frequency_penalty, repeat_last_n, logit_bias, seed; greedy without.
        Several prompts take no shift, and no guesses. UsageError, before anything runs, for what cannot be, CallError or BoundsError for
        ids that are none. An iterator that is left early leaves nothing undone.
        """
        several = are_several(prompt)
        if several and (shift or self.speculation is not None):
            what = "shift" if shift else "what guesses tokens (lookup, draft)"
            raise UsageError(f"generate: {what} is for one prompt at a time; leave it out, or give the prompts one by one.")
        if keep is not None and not shift:
            raise UsageError("generate: keep is for an answer that outgrows max_seq_len; legal: with shift=True.")
        prompts: Sequence[Any] = prompt if several else [prompt]
        ids = [self._ids(each, max_tokens, shift, f" {n}" if several else "") for n, each in enumerate(prompts)]
        shifted = self._shift(ids[0], keep) if shift else None
        texts, sampler = stop_texts("generate", stop), self._sampler("generate", sampling)
        held = [self._constraint("generate", schema=schema, grammar=grammar, regex=regex) for _ in prompts]
        if several:
            asked = zip(ids, held, strict=True)
            return [self._parallel().ask(each, max_tokens, sampler, texts, form).pieces for each, form in asked]
        return self._answer(ids[0], max_tokens, texts, sampler, held[0], shift=shifted)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int = TURN,
        *,
        stop: str | Sequence[str] = (),
        schema: Mapping[str, Any] | bool | str | None = None,
        grammar: str | None = None,
        regex: str | None = None,
        **sampling: Any,
    ) -> Iterator[str]:
        """The answer to a conversation, through the checkpoint's chat template: an iterator of pieces of text.

        messages: `{"role": "user", "content": "..."}`, in order. The answer ends where max_seq_len does. Else as `generate`;
        UsageError also where the checkpoint has no chat template.
        """
        tokenizer = self._spelling("chat")
        self._template = self._template or self.loaded.template()
        if self._template is None:
            raise UsageError("chat: this checkpoint has no chat template; legal: generate(), which continues a text.")
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            said = printable(repr(messages), 60)
            raise UsageError(f'chat: messages={said}; legal: a sequence of {{"role": "user", "content": "..."}}.')
        ids = tokenizer.encode_marked(self._template.render(messages))
        room = self.loaded.context - len(ids)
        if not isinstance(max_tokens, Integral) or max_tokens < 1 or room < 1:
            raise UsageError(
                f"chat: max_tokens={max_tokens!r} after a conversation of {len(ids)} tokens; legal: 1 or more, with max_seq_len over that."
            )
        constraint = self._constraint("chat", schema=schema, grammar=grammar, regex=regex)
        sampler = self._sampler("chat", sampling)
        return self._answer(ids, min(max_tokens, room), stop_texts("chat", stop), sampler, constraint, after_prompt=False)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """float32 (vocab_size,): the logits after these token ids. UsageError for none, or more than max_seq_len, CallError or
        BoundsError for what is no id."""
        ids = self.session.checked(ids)
        if len(ids) > self.loaded.context:
            raise UsageError(f"logits of {len(ids)} tokens; legal: 1 to max_seq_len={self.loaded.context}.")
        return self.session.logits(ids).copy()

    def embed(
        self, texts: str | Sequence[str], *, pooling: str | None = None, dims: int | None = None, truncate: bool = False
    ) -> np.ndarray:
        """float32 (texts, dims): a vector of length 1 for each text, as `Embedder.embed` has them. What gives them is compiled at
        the first call."""
        if self._embedder is None:
            from iron_lm.embedder import Embedder

            self._embedder = Embedder(self.loaded, **self._options)
        return self._embedder.embed(texts, pooling=pooling, dims=dims, truncate=truncate)

    def save_state(self, path: str | Path) -> int:
        """Write what the caches hold into a file, whole or not at all; of how many tokens. OSError where it cannot be written."""
        return self.states.save(path)

    def load_state(self, path: str | Path) -> list[int]:
        """Have the caches hold what a file of `save_state` does; the ids of its tokens. What begins with them goes on from there, bit for
        bit as where they were saved. CheckpointError, in one line, for a file that is damaged, or of another model, of other options
        or of another version of Iron; then they hold what they held."""
        return self.states.load(path).ids

    @property
    def states(self) -> States:
        """What writes and reads such files, whose identity is found once."""
        if self._states is None:
            from iron_lm.generation.states import States

            self._states = States(self.session, self.loaded.whose)
        return self._states

    # -- how -------------------------------------------------------------------------------------

    def _spelling(self, name: str) -> Tokenizer:
        if self.tokenizer is None:
            raise UsageError(
                f"{name}: this checkpoint has no tokenizer; give load() tokenizer=FILE, or use model.session, which takes and gives ids."
            )
        return self.tokenizer

    def _ids(self, prompt: Any, max_tokens: int, shift: bool, which: str) -> list[int]:
        """A prompt's ids. UsageError where an answer of so many tokens does not fit behind it. which: of several, for messages."""
        ids = self._spelling("generate").encode(prompt) if isinstance(prompt, str) else self.session.checked(prompt)
        context, (the, a) = self.loaded.context, ("", "") if which else ("the ", "a ")
        if not ids:
            raise UsageError(f"generate: {the}prompt{which} is empty; legal: some text, or ids.")
        if not isinstance(max_tokens, Integral) or max_tokens < 1 or (len(ids) + max_tokens > context and not shift):
            most = f"1 to {context - len(ids)}" if len(ids) < context else "none with this prompt; a larger max_seq_len"
            raise UsageError(f"generate: max_tokens={max_tokens!r} after {a}prompt{which} of {len(ids)} tokens; legal: {most}.")
        return ids

    def _parallel(self) -> Parallel:
        """What answers several prompts, compiled when there are some."""
        if self._beside is None:
            from iron_lm.parallel import Parallel  # here: most answers are made one by one

            self._beside = Parallel(self.loaded, self.parallel, **self._options)
        return self._beside

    def _sampler(self, name: str, sampling: Mapping[str, Any]) -> Sampler:
        unknown = [rule for rule in sampling if rule not in _RULES]
        if unknown:
            legal = ", ".join(("max_tokens", "stop", "schema", "grammar", "regex", *_RULES))
            raise UsageError(f"{name}: no keyword {unknown[0]}; legal: {legal}.")
        sampler = Sampler(**sampling)
        sampler.check(self.config.vocab_size)
        return sampler

    def _shift(self, ids: list[int], keep: int | None) -> Shift:
        if keep is not None and (not isinstance(keep, Integral) or keep < -1):
            raise UsageError(f"generate: keep={keep!r}. Legal: -1 (the prompt) to {self.loaded.context - 2}.")
        shift = Shift(self.loaded.context, shifting.kept_of(ids, keep, None if self.tokenizer is None else self.tokenizer.bos))
        shift.check(ids)
        return shift

    def _constraint(self, name: str, **asked: Any) -> Constraint | None:
        """What the answer may be. UsageError for two rules, or one that cannot be."""
        given = {kind: value for kind, value in asked.items() if value is not None}
        if not given:
            return None
        if len(given) > 1:
            raise UsageError(f"{name}: {' and '.join(given)} exclude each other; leave one out.")
        from iron_lm.generation.grammar import Grammar, Vocabulary  # here: most answers are free

        self._vocabulary = self._vocabulary or Vocabulary(self._spelling(name), self.config.vocab_size)
        ((kind, value),) = given.items()
        return Grammar(self._vocabulary, kind, value, f"{name}: {kind}").start()

    def _answer(
        self,
        ids: list[int],
        count: int,
        stop: tuple[str, ...],
        sampler: Sampler,
        constraint: Constraint | None = None,
        *,
        after_prompt: bool = True,
        shift: Shift | None = None,
    ) -> Iterator[str]:
        """after_prompt: does the text go on where the prompt's ends, or start anew?"""
        assert self.tokenizer is not None
        answer = Answer(self.tokenizer.stream(), stop)
        if after_prompt:
            answer.stream.take(ids)
        ends = self.tokenizer.stop
        if shift is None:
            said = self.session.tokens(ids, count, sampler, ends, constraint, self.speculation)
        else:
            said = shifting.tokens(self.session, ids, count, sampler, ends, constraint, self.speculation, shift=shift)
        for token in said:
            if piece := answer(token):
                yield piece
            if answer.ended:
                break
        if rest := answer.rest():
            yield rest


def load(
    family: str | Path | type[Architecture] | None,
    path: str | Path | None = None,
    /,
    *,
    tokenizer: str | Path | None = None,
    dtype: str | None = None,
    activations: str | None = None,
    quantize: str | None = None,
    activation_scale: str | None = None,
    max_seq_len: int | None = None,
    prefill_chunk: int | None = None,
    reader: str | None = None,
    quantized_from: str | None = None,
    gptq_zeros: str | None = None,
    lora: Asked | None = None,
    lookup: bool = False,
    draft: str | Path | None = None,
    draft_tokens: int | None = None,
    parallel: int = PARALLEL,
    backend: str | Backend | None = None,
    dev: str | None = None,
) -> Model:
    """`load(path)` or `load(family, path)`: open a checkpoint and compile its model.

    family: its name, as `iron models list` has it, or its class; found from the file without one. tokenizer: a file or folder
    of its own. dtype, activations, quantize, activation_scale, max_seq_len, prefill_chunk, reader, quantized_from, gptq_zeros:
    as `iron-run` has them. lora: the path of a LoRA adapter, several, or `{path: scale}`. lookup, draft: what guesses the tokens of
    answers, up to draft_tokens of which are read together, to the same answers: the text so far, or a smaller model of the same
    vocabulary, by its path. parallel: how many prompts given together are answered side by side. backend: a name or an object
    (`HostBackend(threads=2)`).
    UnknownName lists the families there are; CheckpointError says what is wrong with the files, UsageError with what is asked.
    """
    if not isinstance(parallel, Integral) or parallel < 1:
        raise UsageError(f"parallel={parallel!r}; legal: 1 or more.")
    loaded = opened(
        family, path, tokenizer=tokenizer, dtype=dtype, activations=activations, quantize=quantize, activation_scale=activation_scale,
        max_seq_len=max_seq_len, prefill_chunk=prefill_chunk, reader=reader, quantized_from=quantized_from,
        gptq_zeros=gptq_zeros, lora=lora, backend=backend, dev=dev,
    )  # fmt: skip
    from iron_lm.guessing import guessing  # here: most answers are guessed at by nobody

    guesses = guessing(loaded, lookup, draft, draft_tokens, lambda path: opened(None, path, backend=backend, dev=dev))
    model = Model(loaded, backend=backend, dev=dev)
    model.parallel = parallel
    model.speculation = None if guesses is None else guesses.compiled(model.session, backend=backend, dev=dev)
    return model
