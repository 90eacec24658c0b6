"""`Adapters`: what LoRA adapters add to the matrices of a model as it runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from iron_core import round_to
from iron_core.cache.keys import digest
from iron_core.declare.formats import as_dtype
from iron_core.errors import CheckpointError, UsageError, printable
from iron_lm.checkpoints.reading import reading
from iron_lm.parts.part import Part, widen
from iron_lm.parts.projection import low_rank

if TYPE_CHECKING:
    from iron_lm.checkpoints.low_rank import LowRank

#: What `load` takes: a path; several, each with a scale or alone; or scales by path.
Asked = str | Path | Sequence[str | Path | tuple[str | Path, float]] | Mapping[str | Path, float]


@attrs.frozen(eq=False)
class Adapters:
    """`pairs` by the paths of the matrices that they are added to, whose rows are in the checkpoint's order, `dtype` that in which a
    model is filled with them, and `said` of them, for people."""

    pairs: Mapping[str, LowRank] = attrs.field(factory=dict)
    dtype: str = "float32"
    said: str = ""

    def held(self, model: Part) -> dict[str, np.ndarray]:
        """Have the projections of a model that is not filled yet add them; what it is then filled with besides, by path."""
        found: dict[str, np.ndarray] = {}
        for path, part, projection in model.projections() if self.pairs else ():
            prefix = path.removesuffix(projection.name)
            own = {name: self.pairs[f"{prefix}{name}"] for name in projection.names if f"{prefix}{name}" in self.pairs}
            projection.adapt(**{name: pair.rank for name, pair in own.items()})
            for name, pair in own.items():
                for at, matrix in zip(low_rank(name), (pair.a, part.arranged(name, pair.b)), strict=True):
                    found[f"{prefix}{at}"] = round_to(np.ascontiguousarray(matrix), as_dtype(self.dtype))
        return found

    def merged(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Weights by path, with what is added to them in them: put together where their numbers are asked for."""
        return dict(weights) | {path: _Sum(weights[path], pair) for path, pair in self.pairs.items()}

    @property
    def shapes(self) -> list[tuple[str, int, str]]:
        """(path, rank, dtype) of each."""
        return [(path, pair.rank, self.dtype) for path, pair in self.pairs.items()]

    @property
    def whose(self) -> dict[str, str]:
        """What tells them apart from others and from none, by name."""
        parts = [part for path, pair in self.pairs.items() for part in (path, pair.a.tobytes(), pair.b.tobytes())]
        return {"adapters": digest(*parts) if parts else "none"}


class _Sum:
    """A weight and what is added to it, float32."""

    def __init__(self, weight: Any, pair: LowRank) -> None:
        self.weight, self.pair, self.shape, self.dtype = weight, pair, tuple(weight.shape), np.dtype(np.float32)
        self.ndim = len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = widen(self.weight) + self.pair.product()
        return whole if dtype is None else whole.astype(dtype)


def adapted(loaded: Any, asked: Asked | None) -> Any:
    """A `Loaded` with the adapters that are asked for. UsageError for what names none, and for a model that takes none, CheckpointError
    for one that is damaged, of another model, or says what cannot run."""
    files = scales_of(asked)
    if not files:
        return loaded
    if loaded.config.encodes:
        raise UsageError(f"{loaded.family.name} encodes texts; adapters run in models that continue them. Legal: without lora.")
    from iron_lm.checkpoints.low_rank import LowRank, onto  # here: most models run without

    kind, model = loaded.checkpoint.kind, loaded.build()
    shapes = model.tensors()
    names = loaded.family.asked("names", Mapping, kind, loaded.config)
    matrices = [f"{path.removesuffix(projection.name)}{name}" for path, _, projection in model.projections() for name in projection.names]
    found: dict[str, LowRank] = {}
    said = []
    for path, scale in files:
        with reading(path):
            pairs = onto(str(path), _read(path, loaded.checkpoint), {path: shapes[path] for path in matrices}, names)
        ranks = sorted({pair.rank for pair in pairs.values()})
        ranked = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
        said.append(f"{printable(path.name, 60)} ({ranked}, {len(pairs)} matrices{'' if scale == 1 else f', times {scale:g}'})")
        if scale:  # what adds nothing takes no step
            for at, pair in pairs.items():
                own = LowRank(pair.a, pair.b * np.float32(scale))
                found[at] = found[at].beside(own) if at in found else own
    stored = f"{loaded.stored}; lora {', '.join(said)}"
    return attrs.evolve(loaded, adapters=Adapters(found, _narrowest(found, loaded.run.dtype), ", ".join(said)), stored=stored)


def _narrowest(pairs: Mapping[str, LowRank], dtype: str) -> str:
    """One of half the size that holds all their numbers, where a model computes in float32: half as much to read. Else its own."""
    return next((half for half in ("float16", "bfloat16") if dtype == "float32" and _holds(half, pairs)), dtype)


def _holds(dtype: str, pairs: Mapping[str, LowRank]) -> bool:
    with np.errstate(over="ignore"):
        return all(
            np.array_equal(widen(round_to(matrix, as_dtype(dtype))), matrix) for pair in pairs.values() for matrix in (pair.a, pair.b)
        )


def _read(path: Path, checkpoint: Any) -> dict[str, LowRank]:
    """The pairs of an adapter whose names are those of a checkpoint's tensors."""
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder.")
    from iron_lm.checkpoints import gguf_adapter, peft  # here: most starts read none

    in_gguf = path.is_file() and gguf_adapter.sniff(path)
    if in_gguf != (checkpoint.kind == "gguf") or checkpoint.kind not in ("gguf", "safetensors", "pytorch"):
        kind = "a GGUF" if in_gguf else "PEFT's"
        legal = "adapters in GGUF" if checkpoint.kind == "gguf" else "PEFT's" if checkpoint.kind in ("safetensors", "pytorch") else "none"
        raise CheckpointError(f"{path}: an adapter of {kind} names and orders, for a {checkpoint.kind} checkpoint. Legal: {legal}.")
    return gguf_adapter.read(path, checkpoint) if in_gguf else peft.read(path)


def scales_of(asked: Any) -> list[tuple[Path, float]]:
    """(path, scale) of each adapter, in order. UsageError for what names none, and for a scale that is no finite number."""
    if asked is None:
        return []
    if isinstance(asked, str | os.PathLike):
        asked = (asked,)
    pairs: Any = asked.items() if isinstance(asked, Mapping) else asked if isinstance(asked, Sequence) else (None,)
    given: list[Any] = [pair if isinstance(pair, tuple) and len(pair) == 2 else (pair, 1.0) for pair in pairs]
    for path, scale in given:
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise UsageError(f"lora={printable(repr(asked), 60)}. Legal: a path, several of them, or {{path: scale}}.")
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
            raise UsageError(f"lora: the scale of {printable(path, 80)} is {printable(repr(scale), 40)}; legal: a finite number.")
    return [(Path(path), float(scale)) for path, scale in given]


def named(text: str) -> tuple[str, float]:
    """The path and scale of `PATH=SCALE`, or of a path alone."""
    path, equals, scale = text.rpartition("=")
    if not equals or Path(text).exists():
        return text, 1.0
    try:
        return path, float(scale)
    except ValueError:
        return text, 1.0
