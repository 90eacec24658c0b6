"""`Checkpoint`: a weight file of any registered kind, and the weights a model takes from it."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from iron_core import BlockQuant, Format
from iron_core.declare.formats import LazyPackedArray, SuperBlock
from iron_core.errors import CheckpointError, DeclarationError
from iron_core.side_by_side import side_by_side
from iron_lm.checkpoints import names as tables
from iron_lm.checkpoints import widening
from iron_lm.checkpoints.readers import named, opened, recognised
from iron_lm.checkpoints.reading import reading
from iron_lm.checkpoints.scale_check import LookedAt, ScaleCheck
from iron_lm.checkpoints.sources import Names, Reading, Shape, Source, sources_of, unneeded

#: Faults that a message lists, and tensors of another name that a missing one is compared with.
_SHOWN, _MOST_COMPARED = 3, 1 << 10


class Checkpoint:
    """An open weight file. `kind` is its format's entry-point name, `reader` that with the distribution in front, `metadata` and
    `tensors` what its reader gives."""

    def __init__(self, path: Path, kind: str, file: Any, reader: str = "") -> None:
        self.path, self.kind, self.file = Path(getattr(file, "path", path)), kind, file
        self.reader = reader or kind
        self.metadata: dict[str, Any] = file.metadata
        self.tensors: Any = file.tensors
        #: Tensors that the model which weights were last taken for ignores.
        self.ignored: tuple[str, ...] = ()

    @classmethod
    def open(
        cls, path: str | Path, *, reader: str | None = None, quantized_from: str | None = None, gptq_zeros: str | None = None
    ) -> Checkpoint:
        """Open a file or folder with the `iron.checkpoints.v1` reader that recognises it; CheckpointError names it.

        reader: the name of the one that shall read it, whether it recognises it or not; UsageError lists those there are.
        quantized_from: what its weights were made from, of a file that does not say it; gptq_zeros: how a file of GPTQ's stores zero
        points, "v1" (less one) or "v2". UsageError for a file of another kind.
        """
        said = {"quantized_from": quantized_from, "gptq_zeros": gptq_zeros}
        with reading(path):
            return cls._open(Path(path), reader, {name: value for name, value in said.items() if value is not None})

    @classmethod
    def _open(cls, path: Path, asked: str | None, said: dict[str, Any]) -> Checkpoint:
        try:
            if not path.exists():
                raise CheckpointError(f"{path}: no such file or folder.")
            head = path.open("rb").read(64) if path.is_file() else b""
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror or error}.") from None
        if "\0" in str(path):
            raise CheckpointError(f"{str(path)[:80]!r}: not a path.")
        reader, who = recognised(path, head) if asked is None else (named(asked), "")
        if reader is None:
            raise CheckpointError(f"{path}: not a kind of checkpoint any reader recognises{held(path)}. {who}")
        return cls(path, reader.name, opened(reader, path, said), f"{reader.distribution}:{reader.name}")

    def take(self, shapes: Mapping[str, Shape], names: Names, ignored: tuple[str, ...] = ()) -> dict[str, Any]:
        """Weights by path, of these shapes, from where a family's names say they are: arrays over the file as far as may be.

        ignored: what tensors begin or end with that the model does without. CheckpointError lists every tensor that is missing,
        of another shape, or that nothing uses. DeclarationError for a weight that the parts need and the family names no tensor
        for, and for one that no part needs and that would be made of a needed one's tensors in another way: its path is mistyped.
        """
        reading = _Pass(self.tensors, ignored)
        sources = sources_of(names, shapes)
        _check_unneeded(names, sources)
        reading.known = {name for source in sources.values() for name in source.names}
        looked_at = LookedAt(self.tensors, reading.known, self.reader)
        if looked_at.before:
            reading.finite = lambda _: True
        taken = {path: source.read(reading, shapes[path]) for path, source in sources.items()}
        found = [*reading.faults, *(f"{name} is none this model has" for name in reading.unknown)]
        faults = list(dict.fromkeys(self._within(said) for said in found))
        if faults:
            shown = "; ".join(faults[:_SHOWN]) + (f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else "")
            raise CheckpointError(f"{self.path}: {shown}.")
        looked_at.keep()
        self.ignored = tuple(reading.without)
        return taken

    def _within(self, said: str) -> str:
        """What a reader said of a tensor, as a part of a sentence that begins with the checkpoint's path."""
        return said.removeprefix(f"{self.path}: ").removeprefix(f"{self.path}{os.sep}").removesuffix(".")


def _check_unneeded(names: Names, sources: Mapping[str, Source]) -> None:
    """DeclarationError for a weight that no part needs and that would be made of a needed one's tensors in another way."""
    users: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name in source.names:
            users.setdefault(name, []).append(path)
    for path, source in unneeded(names, sources, {*tables.HUGGINGFACE, *tables.GGUF}):
        used = [user for name in source.names for user in users.get(name, ())]
        if used and all(sources[user] != source for user in used):
            raise DeclarationError(
                f"the family makes {path} of {', '.join(source.names)}, and no part needs it; there is {used[0]}, which is made of that "
                "otherwise. Legal: paths of weights that parts need."
            )


class _Pass(Reading):
    """`known`: tensors that something is made of; `faults`: what was wrong with those asked for."""

    known: set[str]

    def __init__(self, tensors: Any, ignored: tuple[str, ...]) -> None:
        self.tensors, self.ignored = tensors, ignored
        self.refused: dict[str, str] = getattr(tensors, "refused", {})
        self.spare: set[str] = getattr(tensors, "spare", set())
        self.faults: list[str] = []
        self.finite: Callable[[Any], bool] = ScaleCheck()

    @property
    def unknown(self) -> list[str]:
        """Tensors of the file that nothing is made of."""
        return [name for name in self._unused if not name.startswith(self.ignored) and not name.endswith(self.ignored)]

    @property
    def without(self) -> list[str]:
        """Those of them that the model ignores."""
        return [name for name in self._unused if name.startswith(self.ignored) or name.endswith(self.ignored)]

    @property
    def _unused(self) -> list[str]:
        return [name for name in (*self.tensors, *self.refused) if name not in self.known and name not in self.spare]

    def has(self, name: str) -> bool:
        return name in self.tensors or name in self.refused

    def tensor(self, name: str, shape: Shape) -> Any:
        if name in self.refused:
            return self._fault(self.refused[name])
        if name not in self.tensors:
            near = difflib.get_close_matches(name, self.unknown[:_MOST_COMPARED], 1, 0.9) if len(self.faults) < _SHOWN else []
            return self._fault(f"{name} {list(shape)} is missing" + (f" (there is {near[0]})" if near else ""))
        found, _, array = self.tensors[name]
        if tuple(found) != shape:
            return self._fault(f"{name} is {list(found)}, not {list(shape)}")
        if not self.finite(array):
            return self._fault(f"{name} has scales that are NaN or infinite")
        return array

    def _fault(self, said: str) -> None:
        self.faults.append(said)


def held(folder: Path) -> str:
    """What a folder holds, for people; nothing where it is none."""
    if not folder.is_dir():
        return ""
    names = sorted(p.name for p, _ in zip(folder.iterdir(), range(100), strict=False))
    shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:6])
    return f" (it holds {shown}{', ...' if len(names) > 6 else ''})" if names else " (it is empty)"


#: Numbers drawn at once.
_PIECE = 1 << 20


def drawn(wanted: dict[str, tuple[tuple[int, ...], Format]], seed: int) -> dict[str, Any]:
    """Weights by path: matrices N(0, 1 / columns), vectors ones, which is what a random model has. Those in blocks are drawn as they
    are stored, each time their bytes are asked for: integers uniform, with the same variance, or about that of formats whose scales are
    integers too.

    Every matrix has a stream of its own, so the numbers depend on `seed` and the order of `wanted` alone. They are the
    65536 quantiles of the normal distribution: a table read at 16 random bits is ten times as fast as drawing.
    """
    from statistics import NormalDist  # here: most starts draw nothing

    quantile = NormalDist().inv_cdf
    half = np.array([quantile((i + 0.5) / 65536) for i in range(32768)])
    table = np.concatenate([half, -half[::-1]]).astype(np.float32)
    streams = np.random.SeedSequence(seed).spawn(len(wanted))

    def draw(one: tuple[tuple[tuple[int, ...], Format], np.random.SeedSequence]) -> Any:
        (shape, format), stream = one
        if isinstance(format, BlockQuant | SuperBlock):
            return LazyPackedArray(functools.partial(_drawn_blocks, shape, format, stream), shape, format)
        dtype = np.dtype(np.float32) if format.packed else format.dtype
        if len(shape) == 1:
            values = np.ones(shape, dtype)
        else:
            values = np.empty(shape, dtype)
            bits = np.dtype(f"u{dtype.itemsize}")  # copied as bits: a table of bfloat16 is read one object at a time
            scaled = (table * np.float32(shape[-1] ** -0.5)).astype(dtype).view(bits)
            flat, rng = values.view(bits).reshape(-1), np.random.Generator(np.random.SFC64(stream))
            for start in range(0, flat.size, _PIECE):
                part = flat[start : start + _PIECE]
                np.take(scaled, rng.integers(0, 65536, part.size, np.uint16), out=part, mode="clip")
        return format.quantize(values)

    # numpy draws and reads tables without the interpreter's lock
    return dict(zip(wanted, side_by_side(draw, zip(wanted.values(), streams, strict=True)), strict=True))


def _drawn_blocks(shape: tuple[int, ...], format: BlockQuant | SuperBlock, stream: np.random.SeedSequence) -> np.ndarray:
    """The bytes of blocks of any integers: all of one scale, with minima that make their mean 0; superblocks as their format draws them."""
    flat, rng = np.empty(format.nbytes(shape), np.uint8), np.random.Generator(np.random.SFC64(stream))
    if isinstance(format, SuperBlock):
        rows = flat.reshape(-1, format.row_bytes(shape[-1]))
        step = max(1, _PIECE // rows.shape[1])
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            part[:] = format.drawn(rng, (len(part), shape[-1]), shape[-1] ** -0.5).data
        return flat
    for start in range(0, flat.size, _PIECE):
        part = flat[start : start + _PIECE]
        part[:] = rng.integers(0, 256, part.size, np.uint8)
    scale = shape[-1] ** -0.5 / np.sqrt((4.0**format.bits - 1) / 12)
    shared = {"scales": scale, "minima": -scale * (2**format.bits - 1) / 2}
    blocks, roles = flat.reshape(-1, format.block_bytes), [plane.role for plane in format.planes if plane.role in shared]
    for (byte, dtype), role in zip(format.scale_offsets, roles, strict=True):
        blocks[:, byte : byte + dtype.itemsize] = np.array([shared[role]], dtype).view(np.uint8)
    return flat


def convert(array: Any, dtype: np.dtype) -> np.ndarray:
    """A weight as dense numbers of `dtype`; the array itself where it is that already."""
    return widening.dense(array, dtype)
