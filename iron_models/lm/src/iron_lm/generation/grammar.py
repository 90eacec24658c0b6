"""`Grammar`: what an answer may be, as a JSON schema, a grammar (GBNF or Lark) or a regular expression. The library is llguidance."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from iron_core.errors import UsageError, printable
from iron_lm.text.spelling import Undivided
from iron_lm.text.tokenizer import Tokenizer

#: Between the parts of JSON, where a schema says nothing else: what llama.cpp lets through. Small models go on with spaces for ever.
_SPACE = r" |\n{1,2}[ \t]{0,20}"
_INSTALL = "answers by a schema or grammar take the package llguidance; install it with: pip install 'iron-lm[grammar]'."


class _Beside:
    """A thread that computes masks while the graph runs; each takes some microseconds. A forked child has one of its own."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "iron-grammar")
        self._idle = threading.Lock()
        if hasattr(os, "register_at_fork"):
            # No matcher is in the middle of something in a child, whose copy nobody would bring to its end.
            os.register_at_fork(before=self._idle.acquire, after_in_parent=self._idle.release, after_in_child=self._in_child)

    def submit(self, matcher: Any) -> Future[bytes]:
        return self.thread.submit(self.mask, matcher)

    def mask(self, matcher: Any) -> bytes:
        """At once, on this thread."""
        with self._idle:
            mask: bytes = matcher.compute_bitmask()
            return mask

    def _in_child(self) -> None:
        self.thread = ThreadPoolExecutor(1, "iron-grammar")
        self._idle.release()


_BESIDE = _Beside()


class Vocabulary:
    """A tokenizer's ids as the library knows them: by the bytes that each spells.

    size: ids of the model, which may be more than the tokenizer's. UsageError where the library is missing, the tokenizer's text
    is not made of what each id spells, or none of its ids ends an answer.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        try:
            from llguidance import LLTokenizer, TokenizerWrapper
        except ImportError:
            raise UsageError(_INSTALL) from None
        spelling = tokenizer.spelling
        if isinstance(spelling, Undivided):
            raise UsageError("answers by a schema or grammar need a tokenizer whose ids spell their bytes one by one; this one's do not.")
        if not tokenizer.stop:
            raise UsageError("answers by a schema or grammar need a tokenizer that says which id ends one; this one says none.")
        self.size = size
        pieces = [spelling.spell(id, False) for id in range(size)]
        spelled = _Spelled(tokenizer, pieces)
        self.ids = LLTokenizer(TokenizerWrapper(spelled), n_vocab=size, eos_token=[id for id in tokenizer.stop if id < size])


class _Spelled:
    """What the library asks of a tokenizer: the bytes of each id, and the ids of a text that its grammar forces."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, pieces: list[bytes | None]) -> None:
        self._tokenizer, self._pieces = tokenizer, pieces
        self.eos_token_id = tokenizer.stop[0]
        self.tokens = [(tokenizer.token(id) or "").encode() if piece is None else piece for id, piece in enumerate(pieces)]
        self.special_token_ids = [id for id, piece in enumerate(pieces) if not piece]
        self._ids = {piece: id for id, piece in reversed([*enumerate(pieces)]) if piece}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> list[int]:
        """Ids whose bytes are the text's: the tokenizer's own where they are that, else the longest first."""
        if not isinstance(text, str):
            raise TypeError("a text")
        wanted, found = text.encode(), self._tokenizer.encode_plain(text)
        if all(id < len(self._pieces) for id in found) and b"".join(self._pieces[id] or b"\xff" for id in found) == wanted:
            return found
        ids, at = [], 0
        while at < len(wanted):
            ends = range(min(len(wanted), at + self._longest), at, -1)
            end = next((end for end in ends if wanted[at:end] in self._ids), None)
            if end is None:
                break  # no id spells it: the library goes on from here by masks
            ids.append(self._ids[wanted[at:end]])
            at = end
        return ids


class Grammar:
    """What an answer may be. `start()` for each answer. UsageError, in one line, for what is no schema or grammar, or allows nothing."""

    def __init__(self, vocabulary: Vocabulary, kind: str, given: Any, name: str | None = None) -> None:
        """kind: "schema" (a JSON schema: a mapping, True or its text), "grammar" (GBNF or Lark) or "regex". name: in messages."""
        from llguidance import LLMatcher, grammar_from

        name = name or kind
        self._vocabulary = vocabulary
        try:
            if kind == "schema":
                schema = json.loads(given) if isinstance(given, str) else given
                if schema is not True and not isinstance(schema, Mapping):
                    raise ValueError("a JSON schema is an object, or true")
                text = json.dumps({} if schema is True else dict(schema))
                self._grammar = LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_pattern": _SPACE})
            elif not isinstance(given, str):
                raise ValueError("it is no text")
            else:
                self._grammar = grammar_from("regex" if kind == "regex" else "gbnf", given)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{name}: {_one_line(error)}.") from None
        wrong, said = LLMatcher.validate_grammar_with_warnings(self._grammar, vocabulary.ids)
        if wrong:
            raise UsageError(f"{name}: {_one_line(' '.join(said))}.")

    def start(self) -> Constraint:
        """For a new answer."""
        from llguidance import LLMatcher

        return Constraint(LLMatcher(self._vocabulary.ids, self._grammar, log_level=0), self._vocabulary.size)


class Constraint:
    """An answer that a grammar holds, as far as it is. `ended`: nothing can follow."""

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher, self._size = matcher, size
        self._mask: Future[bytes] | None = None
        self._by: ThreadPoolExecutor | None = None

    def look(self) -> None:
        """Begin to find out what may come next, beside whatever is done until `allowed()`."""
        if self._mask is None or self._by is not _BESIDE.thread:  # a parent's thread, which a fork left behind
            self._by = _BESIDE.thread
            self._mask = _BESIDE.submit(self._matcher)

    def allowed(self) -> np.ndarray:
        """bool (size,): the ids that may come next; those that end an answer where it may end. UsageError where the grammar is
        too complex to follow."""
        begun = self._mask is not None and self._by is _BESIDE.thread
        bits = np.frombuffer(self._mask.result() if begun else _BESIDE.mask(self._matcher), np.uint8)  # type: ignore[union-attr]
        self._mask = None
        if self._matcher.is_error():
            raise UsageError(f"the answer's grammar: {_one_line(self._matcher.get_error())}.")
        return np.unpackbits(bits, count=self._size, bitorder="little").view(bool)

    def sure(self, token: int) -> bool:
        """Is this one of those that may come next? It takes a few microseconds, and so says False where `allowed()` alone can tell: of one
        that ends the answer, and where the form goes on in one way only."""
        return self._matcher.validate_tokens([token]) == 1 and not self._matcher.compute_ff_tokens()

    def take(self, token: int) -> None:
        """This one came."""
        self._mask = None
        self._matcher.consume_token(token)

    @property
    def ended(self) -> bool:
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()


def _one_line(error: object) -> str:
    return printable(" ".join(str(error).split()), 200).rstrip(".")
