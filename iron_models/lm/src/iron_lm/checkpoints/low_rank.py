"""`LowRank`: what a LoRA adapter adds to a tensor of a model, and to the weights that are made of that tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.errors import CheckpointError, printable
from iron_lm.checkpoints.sources import Names, Reading, Shape, Source, Transpose, sources_of
from iron_lm.checkpoints.widening import dense
from iron_lm.process import fits


@attrs.frozen(eq=False)
class LowRank:
    """Added to a matrix (N, K): b (N, r) times a (r, K), both float32, the scale in b."""

    a: np.ndarray
    b: np.ndarray

    @property
    def rank(self) -> int:
        return len(self.a)

    def product(self) -> np.ndarray:
        """float32 (N, K)."""
        return np.asarray(self.b @ self.a)

    def beside(self, other: LowRank) -> LowRank:
        """What adds both: one of the sum of their ranks."""
        return LowRank(np.concatenate([self.a, other.a]), np.concatenate([self.b, other.b], 1))


def fit(where: str, pairs: Mapping[str, Mapping[str, Any]]) -> None:
    """CheckpointError where memory has no room for the numbers of tensors as they are stored, by name and which of two, in float32."""
    fits(where, "its matrices take", 4 * sum(math.prod(array.shape) for pair in pairs.values() for array in pair.values()))


def pair_of(where: str, name: str, a: Any, b: Any, scale: float) -> LowRank:
    """Of two tensors as they are stored, a (r, K) and b (N, r), for the tensor `name`. CheckpointError for shapes that are none of
    these, and for numbers that are not finite."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or 0 in (*a.shape, *b.shape):
        shapes = f"{list(a.shape)} and {list(b.shape)}"
        raise CheckpointError(f"{where}: A and B for {printable(name, 80)} are {shapes}; legal: [r, K] and [N, r], r at least 1.")
    pair = LowRank(dense(a, np.float32), dense(b, np.float32) * np.float32(scale))
    if not (np.isfinite(pair.a).all() and np.isfinite(pair.b).all()):
        raise CheckpointError(f"{where}: A and B for {printable(name, 80)} hold numbers that are NaN or infinite.")
    return pair


def onto(where: str, pairs: Mapping[str, LowRank], shapes: Mapping[str, Shape], names: Names) -> dict[str, LowRank]:
    """What pairs, by the names of a checkpoint's tensors, add to weights of these shapes, by path: b is read as the tensor itself would
    be, so that rows of a matrix which lies within a tensor are its own. CheckpointError for a pair of another shape than its
    tensor, and for one whose tensor none of these weights is made of."""
    found: dict[str, LowRank] = {}
    used: set[str] = set()
    for path, source in sources_of(names, shapes).items():
        for name in dict.fromkeys(source.names):
            if name in pairs:
                used.add(name)
                own = _read(where, source, name, pairs, shapes[path])
                found[path] = own if path not in found else found[path].beside(own)
    for name in pairs:
        if name not in used:
            legal = sorted({module for source in sources_of(names, shapes).values() for module in map(_module, source.names)})
            said = f"it is of {printable(name, 80)}, on which no adapter runs in this model"
            raise CheckpointError(f"{where}: {said}. Legal: {', '.join(legal)}.")
    return found


def _module(name: str) -> str:
    """`q_proj` of `model.layers.0.self_attn.q_proj.weight`."""
    return name.removesuffix(".weight").rpartition(".")[2]


def _read(where: str, source: Source, name: str, pairs: Mapping[str, LowRank], shape: Shape) -> LowRank:
    pair = pairs[name]
    if pair.a.shape[1] != shape[1]:
        wrong = f"A for {printable(name, 80)} is {list(pair.a.shape)}, not {[pair.rank, shape[1]]}"
        raise CheckpointError(f"{where}: {wrong}; it is of another model.")
    rows = _Rows(where, name, pairs, sum(isinstance(each, Transpose) for each in _chain(source)) % 2 == 1)
    return LowRank(pair.a, np.asarray(source.read(rows, (shape[0], pair.rank))))


def _chain(source: Any) -> Iterator[Any]:
    """A source, that which it is made of, and so on."""
    while source is not None:
        yield source
        source = getattr(source, "of", None)


@attrs.frozen(eq=False)
class _Rows(Reading):
    """A pair's b in place of its tensor, and zeros in place of others. turned: is the tensor stored the other way round?"""

    where: str
    name: str
    pairs: Mapping[str, LowRank]
    turned: bool

    def has(self, name: str) -> bool:
        return name in self.pairs

    def tensor(self, name: str, shape: Shape) -> Any:
        if name != self.name:
            return np.zeros(shape, np.float32)
        b = self.pairs[name].b
        b = b.T if self.turned else b
        if b.shape != tuple(shape):
            wanted = list(shape[::-1] if self.turned else shape)
            wrong = f"B for {printable(name, 80)} is {list(self.pairs[name].b.shape)}, not {wanted}"
            raise CheckpointError(f"{self.where}: {wrong}; it is of another model.")
        return b
