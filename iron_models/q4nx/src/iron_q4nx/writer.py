"""A checkpoint as FastFlowLM lays one out: projections as chunks of 4 bits, everything else in bfloat16."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core import Q4NX, Dense, bfloat16
from iron_core.errors import CheckpointError, FormatError
from iron_lm import families
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.config_json import config_json
from iron_lm.checkpoints.safetensors_header import written
from iron_lm.checkpoints.sources import Name, Scaled, sources_of
from iron_lm.conversion.output import Output, Piece
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run
from iron_lm.text.tokenizer_files import tokenizer_files
from iron_q4nx import narrowing
from iron_q4nx.layout import CONFIG, QUANTIZED_FROM, WEIGHTS

_EMBEDDING, _HEAD = "embedding.table", "head.matrix"
#: Weights whose rows are a head's numbers, in the order in which their pairs turn.
_TURNING = re.compile(r"\.mixer\.(q|k|q_bias|k_bias|q_norm\.weight|k_norm\.weight)$")
_BF16, _CHUNKS = "BF16", "I8"


@attrs.frozen(eq=False)
class _Tensor:
    """A tensor to be written: the path of what it is read from, its name, the array it is made of, the rows of that in their order
    (None: as they are), and what its numbers are multiplied by."""

    where: str
    name: str
    array: Any
    chunked: bool
    order: np.ndarray | None
    scale: float

    @property
    def nbytes(self) -> int:
        return (Q4NX if self.chunked else Dense(bfloat16)).nbytes(tuple(self.array.shape))

    @property
    def dtype(self) -> str:
        return _CHUNKS if self.chunked else _BF16

    @property
    def shape(self) -> list[int]:
        """As the header says it."""
        return [self.nbytes // Q4NX.block_bytes, Q4NX.block_bytes] if self.chunked else list(self.array.shape)

    def parts(self) -> Iterator[np.ndarray]:
        try:
            yield from narrowing.made(self.array, self.order, narrowing.chunks if self.chunked else self._narrow)
        except CheckpointError as error:
            raise CheckpointError(f"{self.where}: {self.name} {error}") from None

    def _narrow(self, rows: Any) -> np.ndarray:
        return narrowing.narrow(rows, self.scale)


def output(checkpoint: Checkpoint) -> Output:
    """The folder that holds a checkpoint's model. CheckpointError for a model that the layout has no names for, matrices that are no
    whole chunks, and settings that no config.json says."""
    family = families.of(checkpoint)
    config = family.described(checkpoint)[0]
    if config.encodes:
        says = f"{family.name} encodes texts, and FastFlowLM's layout has names for models that continue them"
        raise CheckpointError(f"{checkpoint.path}: {says}. An encoder runs from the folder it is in.")
    shapes = family.asked("build", Decoder, config, Run(1, 1)).tensors()
    arrays = checkpoint.take(shapes, family.asked("names", Mapping, checkpoint.kind, config), family.ignored.get(checkpoint.kind, ()))
    files = {CONFIG: _config(checkpoint, family, config), **tokenizer_files(checkpoint)}
    arrays.setdefault(_HEAD, arrays[_EMBEDDING])  # a head that is tied is written all the same
    order = None if config.rotary is None else halves(config.rotary)
    names = sources_of(family.asked("names", Mapping, "q4nx", config), arrays)
    tensors = [_tensor(path, array, names[path], order, str(checkpoint.path)) for path, array in arrays.items()]
    pieces = [Piece(tensor.name, tensor.nbytes, tensor.parts) for tensor in tensors]
    return Output(files, WEIGHTS, _header(tensors), pieces)


def halves(config: RotaryConfig) -> np.ndarray | None:
    """Which number of a head stands at each place where the pairs that turn are of its halves; None: they are so already."""
    if not config.neighbours:
        return None
    turning = config.turning
    return np.concatenate([np.arange(0, turning, 2), np.arange(1, turning, 2), np.arange(turning, config.head_dim)])


def _tensor(path: str, array: Any, source: Any, order: np.ndarray | None, where: str) -> _Tensor:
    shape, scale = tuple(array.shape), 1.0
    if isinstance(source, Scaled):
        scale, source = source.factor, source.of
    chunked = len(shape) == 2 and not path.endswith(_EMBEDDING)
    if not isinstance(source, Name) or (chunked and scale != 1):
        raise CheckpointError(f"{where}: {path} is no tensor of its own in FastFlowLM's layout, which has no names for such a model.")
    if chunked:
        try:
            Q4NX.stored(shape)
        except FormatError as error:
            raise CheckpointError(f"{where}: {source.name} is {list(shape)}; {error}") from None
    rows = None
    if order is not None and _TURNING.search(path):
        rows = (np.arange(0, shape[0], len(order))[:, None] + order).ravel()
    return _Tensor(where, source.name, array, chunked, rows, scale)


def _config(checkpoint: Checkpoint, family: Any, config: Any) -> bytes:
    """The config.json that the checkpoint has, or one that says the same."""
    if "config" in checkpoint.metadata:
        folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
        return (folder / CONFIG).read_bytes()
    return json.dumps(config_json(family, config), indent=2).encode()


def _header(tensors: list[_Tensor]) -> bytes:
    """A safetensors header of these tensors; what FastFlowLM does not say, how 4 bits are meant, is in its `__metadata__`."""
    return written(((tensor.name, tensor.dtype, tensor.shape, tensor.nbytes) for tensor in tensors), {QUANTIZED_FROM: "Q4_1"})
