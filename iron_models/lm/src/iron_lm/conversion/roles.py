"""Which matrices of a checkpoint a conversion rounds, by the part of the model that multiplies by them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from iron_core.errors import CheckpointError, UsageError, printable
from iron_lm import families
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.sources import (
    Below,
    Either,
    Expert,
    FirstOf,
    Interleaved,
    Name,
    Shape,
    Source,
    Split,
    Stack,
    sources_of,
)
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.part import Part
from iron_lm.run import Run

#: Numbers of a row that share a scale, the most first.
BLOCKS = (128, 64, 32)


#: A weight that is made of a tensor: its path, source and shape.
Use = tuple[str, Source, Shape]


def by_role(model: Part) -> dict[str, dict[str, Shape]]:
    """Shape by path of every matrix that a conversion may round, by its part's category, as `--profile` prints it."""
    shapes, found = model.tensors(), dict[str, dict[str, Shape]]()
    for path, part in model.walk():
        for name in part.multiplied():
            full = f"{path}.{name}" if path else name
            found.setdefault(part.category, {})[full] = shapes[full]
    return {role: paths for role, paths in found.items() if role}


def chosen(checkpoint: Checkpoint, asked: Iterable[str]) -> dict[str, list[Use]]:
    """The file's tensors with matrices of the roles that are asked for, and what is made of each. UsageError for a role that the model
    has none of; CheckpointError for an encoder, and for matrices that are missing, are no floats, or lie otherwise than row by row."""
    family = families.of(checkpoint)
    config = family.described(checkpoint)[0]
    if config.encodes:
        raise CheckpointError(f"{checkpoint.path}: {family.name} encodes texts. Legal: a model that continues them.")
    model = family.asked("build", Decoder, config, Run(1, 1))
    roles, shapes = by_role(model), model.tensors()
    paths = {path for role in _named(asked, roles) for path in roles[role]}
    sources = sources_of(family.asked("names", Mapping, checkpoint.kind, config), shapes)
    there = {*checkpoint.tensors, *getattr(checkpoint.tensors, "refused", ())}
    found: dict[str, list[Use]] = {}
    for path in shapes:
        if path in paths:
            for name in _rows(sources[path], there.__contains__, f"{checkpoint.path}: {path}"):
                _check_floats(checkpoint, name)
                found.setdefault(name, []).append((path, sources[path], shapes[path]))
    for path in shapes:
        if path not in paths and (both := sorted(found.keys() & set(sources[path].names))):
            raise CheckpointError(f"{checkpoint.path}: {both[0]} holds {path} too, which is of another part. Legal: --int4 of both.")
    return found


def _named(asked: Iterable[str], roles: Mapping[str, Any]) -> list[str]:
    """Roles by their names, in which hyphens, underscores and spaces are alike."""
    spelled = {_spelled(role): role for role in roles}
    legal = f"Legal: {', '.join(roles) or 'none'}."
    found = []
    for one in (name for names in asked for name in names.split(",")):
        role = spelled.get(_spelled(one))
        if role is None:
            raise UsageError(f"--int4 {printable(one.strip(), 40)!r}: this model has no such matrices. {legal}")
        found.append(role)
    return found


def _spelled(role: str) -> str:
    return re.sub(r"[\s_-]+", " ", role.strip().lower())


def _rows(source: Source, has: Callable[[str], bool], where: str) -> tuple[str, ...]:
    """The tensors of the file that whole rows of a weight are taken from, in its order. CheckpointError for one that is made
    otherwise."""
    match source:
        case Name():
            return (source.name,)
        case Either():
            return (next(filter(has, source.known), source.known[0]),)
        case FirstOf():
            return _rows(present(source, has), has, where)
        case Split() | Interleaved() | Expert():
            return _rows(source.of, has, where)
        case Stack():
            return tuple(name for part in source.parts for name in _rows(part, has, where))
        case Below():
            return tuple(name for part, _ in source.parts for name in _rows(part, has, where))
    raise CheckpointError(f"{where} is {source.names[0]} turned or scaled, which has no blocks of a row. Legal: rows as they are stored.")


def present(source: FirstOf, has: Callable[[str], bool]) -> Source:
    """The one of several sources that is read."""
    return next((one for one in source.known if all(map(has, one.names))), source.known[-1])


def _check_floats(checkpoint: Checkpoint, name: str) -> None:
    if name in getattr(checkpoint.tensors, "refused", {}):
        raise CheckpointError(checkpoint.tensors.refused[name])
    if name not in checkpoint.tensors:
        raise CheckpointError(f"{checkpoint.path}: {name} is missing.")
    format = checkpoint.tensors[name][1]
    if format.packed:
        raise CheckpointError(f"{checkpoint.path}: {name} is {format} already. Legal: floats.")


def block_of(asked: int | None, rows: Mapping[str, int], legal: tuple[int, ...]) -> int:
    """Numbers that share a scale: as asked, else the most of `legal` that all rows are whole blocks of. rows: the length of a row, by
    tensor. UsageError for another number, and for rows that are not whole blocks."""
    fit = [block for block in legal if all(length % block == 0 for length in rows.values())]
    if asked is not None and asked not in legal:
        raise UsageError(f"--int4-block {asked}. Legal: {', '.join(map(str, sorted(legal)))}.")
    block = asked if asked is not None else fit[0] if fit else legal[-1]
    for name, length in rows.items():
        if length % block:
            others = f"Legal: {', '.join(map(str, sorted(fit)))}." if fit else "No block divides the rows of all. Legal: other roles."
            raise UsageError(f"--int4-block {block}: {name} has rows of {length}, which are no whole blocks. {others}")
    return block
