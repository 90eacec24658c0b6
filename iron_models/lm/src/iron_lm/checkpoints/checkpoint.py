"""`Checkpoint`: a weight file of any registered kind, and the tree of weights a model takes from it."""

from __future__ import annotations

import difflib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np

from iron_core import Dense, Format, PackedArray
from iron_core.errors import CheckpointError
from iron_core.side_by_side import side_by_side
from iron_lm.checkpoints import widening
from iron_lm.checkpoints.readers import opened, recognised
from iron_lm.checkpoints.reading import reading
from iron_lm.checkpoints.widening import ScaleCheck, runs_as

#: Faults that a message lists, and tensors of another name that a missing one is compared with.
_SHOWN, _MOST_COMPARED = 3, 1 << 10


@attrs.frozen
class Layout:
    """Where a model's weights are in a kind of file: attribute path -> (tensor name, shape as names of Config fields).

    `{i}` in a path and its name stands for each layer. `optional` paths may be absent. `ignored` are prefixes of tensors
    the model does without. `less_one`: the file holds vectors, which are the norms' weights, less 1; they are read with it
    added, in float32, because 1 + w has more digits than a narrow w.
    """

    names: dict[str, tuple[str, tuple[Any, ...]]]
    optional: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()
    less_one: bool = False

    def expand(self, config: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Every path of this config with its tensor's name and shape."""
        found = {}
        for path, (name, dims) in self.names.items():
            shape = tuple(d(config) if callable(d) else getattr(config, d) for d in dims)
            for i in range(config.num_layers) if "{i}" in path else (0,):
                found[path.format(i=i)] = (name.format(i=i), shape)
        return found


class Checkpoint:
    """An open weight file. `kind` is its format's entry-point name, `metadata` and `tensors` what its reader gives."""

    def __init__(self, path: Path, kind: str, file: Any) -> None:
        self.path, self.kind, self.file = Path(getattr(file, "path", path)), kind, file
        self.metadata: dict[str, Any] = file.metadata
        self.tensors: Any = file.tensors

    @classmethod
    def open(cls, path: str | Path) -> Checkpoint:
        """Open a file or folder with the `iron.checkpoints.v1` reader that recognises it; CheckpointError names it."""
        with reading(path):
            return cls._open(Path(path))

    @classmethod
    def _open(cls, path: Path) -> Checkpoint:
        try:
            if not path.exists():
                raise CheckpointError(f"{path}: no such file or folder.")
            head = path.open("rb").read(64) if path.is_file() else b""
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror or error}.") from None
        if "\0" in str(path):
            raise CheckpointError(f"{str(path)[:80]!r}: not a path.")
        reader, who = recognised(path, head)
        if reader is None:
            raise CheckpointError(f"{path}: not a kind of checkpoint any reader recognises{held(path)}. {who}")
        return cls(path, reader.name, opened(reader, path))

    @property
    def block_format(self) -> Format | None:
        """The block format most of its tensors run as, or None where all of them run dense."""
        counts: dict[Format, int] = {}
        for _, stored, _ in self.tensors.values():
            format = runs_as(stored)
            if format.packed:
                counts[format] = counts.get(format, 0) + 1
        return max(counts, key=counts.__getitem__) if counts else None

    def tree(self, layout: Layout, config: Any, fill: str = "read", seed: int = 0) -> SimpleNamespace:
        """The weights by attribute path, arrays over the file.

        fill: "read" the file's numbers; "random" drawn at `seed` in the file's shapes and formats; "unread" shapes only
        (for tracing). CheckpointError lists every tensor that is missing, unknown or of another shape.
        """
        wanted = layout.expand(config)
        known = {name for name, _ in wanted.values()}
        refused = getattr(self.tensors, "refused", {})
        unknown = [n for n in (*self.tensors, *refused) if n not in known and not n.startswith(layout.ignored)]
        faults: list[str] = []
        taken, finite = {}, ScaleCheck()
        for path, (name, shape) in wanted.items():
            if name in refused:
                faults.append(refused[name])
            elif name not in self.tensors:
                if path not in layout.optional:
                    near = difflib.get_close_matches(name, unknown[:_MOST_COMPARED], 1, 0.9) if len(faults) < _SHOWN else []
                    faults.append(f"{name} {list(shape)} is missing" + (f" (there is {near[0]})" if near else ""))
            elif tuple(self.tensors[name][0]) != shape:
                faults.append(f"{name} is {list(self.tensors[name][0])}, not {list(shape)}")
            elif layout.less_one and len(shape) == 1:
                taken[path] = (shape, Dense(np.float32), np.asarray(self.tensors[name][2]).astype(np.float32) + np.float32(1))
            else:
                taken[path] = self.tensors[name]
                if fill == "read" and not finite(taken[path][2]):
                    faults.append(f"{name} has scales that are NaN or infinite")
        faults += [f"{n} is none this model has" for n in unknown]
        if faults:
            shown = "; ".join(faults[:_SHOWN]) + (f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else "")
            raise CheckpointError(f"{self.path}: {shown}.")
        if fill == "random":
            return as_tree(drawn({path: (shape, runs_as(format)) for path, (shape, format, _) in taken.items()}, seed))
        return as_tree({path: unread(s, runs_as(f)) if fill == "unread" else array for path, (s, f, array) in taken.items()})


def held(folder: Path) -> str:
    """What a folder holds, for people; nothing where it is none."""
    if not folder.is_dir():
        return ""
    names = sorted(p.name for p, _ in zip(folder.iterdir(), range(100), strict=False))
    shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:6])
    return f" (it holds {shown}{', ...' if len(names) > 6 else ''})" if names else " (it is empty)"


def as_tree(flat: dict[str, Any]) -> SimpleNamespace:
    """`layers.3.q` -> tree.layers[3].q: namespaces, and lists where names are numbers."""
    root: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        node = root
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value

    def build(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if node and all(k.isdigit() for k in node):
            return [build(node[k]) for k in sorted(node, key=int)]
        return SimpleNamespace(**{k: build(v) for k, v in node.items()})

    return build(root)  # type: ignore[no-any-return]


def unread(shape: tuple[int, ...], format: Format) -> Any:
    """An array of this shape and format that takes no memory: for tracing."""
    data = np.broadcast_to(np.zeros((), format.dtype), format.stored(shape))
    return PackedArray(data, shape, format) if format.packed else data


#: Numbers drawn at once.
_PIECE = 1 << 20


def drawn(wanted: dict[str, tuple[tuple[int, ...], Format]], seed: int) -> dict[str, Any]:
    """Weights by path: matrices N(0, 1 / columns), vectors ones, which is what a random model has.

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


def convert(array: Any, dtype: np.dtype) -> np.ndarray:
    """A weight as dense numbers of `dtype`; the array itself where it is that already."""
    return widening.dense(array, dtype)
