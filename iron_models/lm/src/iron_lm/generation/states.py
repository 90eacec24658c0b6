"""`States`: what a session holds of its tokens, in a file, to go on from in another process.

Beside `ids` there are of each cache the rows in use, of states that cannot go back these and every copy of them, and `talk`, text of
whoever saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core.errors import UsageError, printable
from iron_lm.generation import state_file
from iron_lm.generation.session import Session
from iron_lm.generation.state_file import StateFile, Tensor

_ID, _BYTE = np.dtype(np.int32), np.dtype(np.uint8)


@attrs.frozen
class Saved:
    """What a file held: the token ids whose states a session has now, and the talk."""

    ids: list[int]
    talk: str


class States:
    """Writes what a session holds, and reads it back. whose: what must be the same for both, by name, in the order in which a
    difference is told."""

    def __init__(self, session: Session, whose: Mapping[str, str]) -> None:
        self.session, self.whose = session, dict(whose)

    def save(self, path: str | bytes | Path, talk: str = "") -> int:
        """Write the file, whole or not at all; how many tokens it holds. OSError where it cannot be written, UsageError for a model with
        a cache that does not say what of it is in use."""
        return self.session.alone(partial(_save, path=path, whose=self.whose, talk=talk))

    def load(self, path: str | bytes | Path, accepts: Callable[[str], object] | None = None) -> Saved:
        """Have the session hold what a file does. CheckpointError, in one line, for one that is damaged, another model's, or none; the
        session is then as it was, as it is where `accepts` raises at the talk."""
        named = path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path
        return self.session.alone(partial(_load, path=named, whose=self.whose, accepts=accepts))


@attrs.frozen
class _Part:
    """A state of which the first `rows` are in use: all where that is None."""

    state: Any
    rows: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.state.shape) if self.rows is None else (self.rows, *self.state.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.state.format.dtype)


def _parts(session: Session, tokens: int, base: int, at: int | None) -> dict[str, _Part]:
    """The states that so many tokens use, by name. at: how many tokens those that cannot go back are of; None: not known."""
    found = {}
    for number, cache in enumerate(session.model.caches):
        if not hasattr(cache, "in_use"):
            kind = printable(type(cache).__name__)
            raise UsageError(f"states of a model with a {kind} cannot be saved, for it has no in_use(). Legal: the conversation alone.")
        for name, (state, rows) in cache.in_use(tokens, base).items():
            if rows is not None or at is not None:
                found[f"cache.{number}.{name}"] = _Part(state, rows)
    return found


def _copy(position: int, number: int) -> str:
    return f"copy.{position}.{number}"


def _save(session: Session, *, path: str | bytes | Path, whose: Mapping[str, str], talk: str) -> int:
    kept, held = session.snapshots, session.held
    # States of more tokens than are held, and copies of such, are of tokens that were taken back.
    at = None if kept is None or kept.at is None or kept.at > len(held) else kept.at
    copies = {} if kept is None else {position: made for position, made in kept.copies.items() if position <= len(held)}
    said = np.frombuffer(talk.encode("utf-8", "backslashreplace"), np.uint8)
    tensors = {"ids": Tensor((len(held),), _ID, lambda: np.asarray(held, _ID))}
    for name, part in _parts(session, len(held), session.base, at).items():
        tensors[name] = Tensor(part.shape, part.dtype, partial(session.compiled.read, part.state, part.rows))
    for position, made in copies.items():
        tensors |= {_copy(position, i): Tensor(one.shape, one.dtype, partial(np.asarray, one)) for i, one in enumerate(made)}
    tensors["talk"] = Tensor(said.shape, _BYTE, lambda: said)
    where = {"base": str(session.base), "at": "" if at is None else str(at), "copies": " ".join(map(str, copies))}
    state_file.write(path, {**whose, **where}, tensors)
    return len(held)


def _load(session: Session, *, path: str | Path, whose: Mapping[str, str], accepts: Callable[[str], object] | None) -> Saved:
    file, model, kept = StateFile(path), session.model, session.snapshots
    file.check(whose)
    ids = file.array("ids", file.shape("ids"), _ID).ravel().tolist()
    if len(ids) > model.run.max_seq_len or (ids and not 0 <= min(ids) <= max(ids) < model.vocab_size):
        legal = f"up to {model.run.max_seq_len}, each 0 to {model.vocab_size - 1}"
        raise file.refused(f"its tokens are none of this model. Legal: {legal}")
    base, at, positions = _where(file, session, len(ids))
    parts = _parts(session, len(ids), base, at)
    arrays = {name: file.array(name, part.shape, part.dtype) for name, part in parts.items()}
    states = [_Part(state) for state in model.recurrent]
    copies = {n: [file.array(_copy(n, i), part.shape, part.dtype).copy() for i, part in enumerate(states)] for n in positions}
    talk = file.array("talk", file.shape("talk"), _BYTE).tobytes().decode("utf-8", "replace")
    known = {"ids", "talk", *arrays, *(_copy(n, i) for n in positions for i in range(len(states)))}
    if other := sorted(file.names - known):
        raise file.refused(f"the state of another model: nothing here is called {printable(other[0], 60)}")
    if accepts is not None:
        accepts(talk)
    session.forget()  # until all of it is there
    for name, part in parts.items():
        session.compiled.write(part.state, arrays[name], part.rows)
    if kept is not None:
        kept.become(at, copies)
    session.held, session.base = ids, base
    return Saved(ids, talk)


def _where(file: StateFile, session: Session, tokens: int) -> tuple[int, int | None, list[int]]:
    """The first token in caches that slide, of how many tokens states that cannot go back are, and of how many their copies."""
    try:
        base, at = int(file.metadata["base"]), file.metadata["at"]
        of = int(at) if at else None
        copies = sorted({int(position) for position in file.metadata["copies"].split()})
    except (KeyError, ValueError):
        raise file.refused("its metadata do not say where it stands") from None
    numbers = [*copies, *([] if of is None else [of])]
    bases = {session.model.base(position) for position in range(tokens + 1)} | {session.model.run.max_seq_len}
    if base not in bases or any(not 0 <= n <= tokens for n in numbers) or (numbers and session.snapshots is None):
        raise file.refused("its metadata say what no session of this model holds")
    return base, of, copies
