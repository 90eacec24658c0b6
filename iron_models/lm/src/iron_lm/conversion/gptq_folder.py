"""A safetensors folder in which matrices of some roles are GPTQ's, and everything else is as it was."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core.declare.formats import grouped
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.bounded_json import read_json
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.safetensors_header import Entry, read_header, written
from iron_lm.checkpoints.sources import FirstOf, Reading, Shape, Source, Stack
from iron_lm.checkpoints.widening import in_pieces
from iron_lm.conversion.output import Output, Piece, Weights
from iron_lm.conversion.roles import BLOCKS, Use, block_of, chosen, present
from iron_lm.conversion.rounding import rounded
from iron_lm.text.tokenizer_files import tokenizer_files

_CONFIG = "config.json"
#: Numbers of a word, and of outputs that GPTQ packs zero points of.
_WORD = 8
#: Bytes that are copied at once.
_COPIED = 1 << 24


@attrs.frozen(eq=False)
class Matrix:
    """A matrix (N, K) of floats, what its module is called, and where it is from."""

    where: Path
    module: str
    array: np.ndarray

    def packed(self, block: int) -> dict[str, np.ndarray]:
        """`qweight`, `qzeros` and `scales` of it as `uint4_group<block>` rounds it. CheckpointError for numbers that are not finite, or
        too large for a scale."""
        format = grouped(4, block, zeros=True)
        rows, columns = self.array.shape
        words = np.empty((columns // _WORD, rows), np.uint32)
        scales, zeros = np.empty((columns // block, rows), np.float16), np.empty((columns // block, rows), np.uint8)

        def turn(part: slice) -> None:
            found = rounded(format, f"{self.where}: {self.module}", self.array[part])
            numbers = {plane.role: format.numbers(plane, found.data, found.shape) for plane in format.planes if plane.role != "values"}
            words[:, part] = _words(format.integers(found.data, found.shape)).T
            scales[:, part], zeros[:, part] = numbers["scales"].T, numbers["zeros"].T

        in_pieces(turn, rows, columns)
        return {"qweight": words, "qzeros": _words(zeros), "scales": scales}


class _Rounding:
    """Makes matrices, and keeps the last for as long as its arrays are written one after another."""

    def __init__(self, block: int) -> None:
        self.block = block
        self._last: tuple[Matrix | None, dict[str, np.ndarray]] = (None, {})

    def parts(self, matrix: Matrix, suffix: str) -> Iterator[np.ndarray]:
        if self._last[0] is not matrix:
            self._last = (None, {})  # before the next is made
            self._last = (matrix, matrix.packed(self.block))
        yield _raw(self._last[1][suffix])
        if suffix == "scales":
            self._last = (None, {})

    def order(self, columns: int) -> Iterator[np.ndarray]:
        """The group of each input."""
        yield _raw((np.arange(columns) // self.block).astype(np.int32))

    def pieces(self, matrix: Matrix) -> Iterator[tuple[Piece, str, tuple[int, ...]]]:
        """Each array of a matrix with its dtype and shape, as headers have them."""
        rows, columns = matrix.array.shape
        groups = columns // self.block
        yield Piece(f"{matrix.module}.g_idx", 4 * columns, partial(self.order, columns)), "I32", (columns,)
        for suffix, dtype, shape in (
            ("qweight", "I32", (columns // _WORD, rows)),
            ("qzeros", "I32", (groups, rows // _WORD)),
            ("scales", "F16", (groups, rows)),
        ):
            nbytes = math.prod(shape) * (2 if dtype == "F16" else 4)
            yield Piece(f"{matrix.module}.{suffix}", nbytes, partial(self.parts, matrix, suffix)), dtype, shape


def output(checkpoint: Checkpoint, roles: Iterable[str], block: int | None) -> Output:
    """The folder that has the matrices of these roles in 4 bits, a scale and a zero point for `block` numbers of a row. CheckpointError
    for a checkpoint that is packed already, and for matrices that GPTQ's layout does not hold."""
    config = checkpoint.metadata.get("config", {})
    if config.get("quantization_config") is not None or any(format.packed for _, format, _ in checkpoint.tensors.values()):
        raise CheckpointError(f"{checkpoint.path}: its weights are packed already. Legal: a checkpoint of floats.")
    found = chosen(checkpoint, roles)
    block = block_of(block, {name: int(checkpoint.tensors[name][0][-1]) for name in found}, BLOCKS)
    matrices = {name: list(_matrices(checkpoint, name, uses)) for name, uses in found.items()}
    rounding = _Rounding(block)
    weights = [_file(Path(path), matrices, rounding) for path in checkpoint.file.files]
    modules = [matrix.module for some in matrices.values() for matrix in some]
    names = [name for name, (shape, _, _) in checkpoint.tensors.items() if len(shape) > 1]
    said = config | {"quantization_config": described(block, modules, names)}
    files = {_CONFIG: json.dumps(said, indent=2).encode()} | _index(checkpoint, weights) | tokenizer_files(checkpoint)
    first, *more = weights
    return Output(files, first.name, first.header, first.pieces, more)


def described(block: int, modules: list[str], names: list[str]) -> dict[str, Any]:
    """`quantization_config`, which names the modules that are packed (as transformers and optimum read it) and, of the matrices of these
    `names`, those that are not (as GPTQModel and vLLM do: patterns that begin with "-:")."""
    inside = dict.fromkeys(re.sub(r"^.*?\.\d+\.", "", module) for module in modules)
    patterns = [one for one in dict.fromkeys(map(_pattern, names)) if not any(re.match(one, module) for module in modules)]
    return {
        "quant_method": "gptq", "bits": 4, "group_size": block, "desc_act": False, "sym": False, "lm_head": False,
        "checkpoint_format": "gptq_v2", "pack_dtype": "int32", "modules_in_block_to_quantize": [list(inside)],
        "dynamic": {f"-:{pattern}": {} for pattern in patterns},
    }  # fmt: skip


def _pattern(name: str) -> str:
    """The module of a weight in any layer, of any expert; of a tensor in which experts lie together, any module of theirs."""
    module, end = (name.removesuffix(".weight"), "$") if name.endswith(".weight") else (name.rpartition(".")[0], r"(\..*)?$")
    return "^" + re.sub(r"(?<=\.)\d+(?=\\\.)", r"\\d+", re.escape(module)) + end


class _Stored(Reading):
    """A checkpoint's arrays as they lie."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.tensors = tensors

    def has(self, name: str) -> bool:
        return name in self.tensors

    def tensor(self, name: str, shape: Shape) -> Any:
        found = self.tensors[name][2]
        if tuple(found.shape) != shape:
            raise CheckpointError(f"{name} is {list(found.shape)}, not {list(shape)}.")
        return found


def _matrices(checkpoint: Checkpoint, name: str, uses: list[Use]) -> Iterator[Matrix]:
    """What a tensor is written as. Experts that lie together are written one by one, as public packers do. CheckpointError for a tensor
    that is no module's weight, or whose outputs fill no words."""
    shape, _, array = checkpoint.tensors[name]
    if len(shape) == 2 and name.endswith(".weight"):
        found = [Matrix(checkpoint.path, name.removesuffix(".weight"), array)]
    else:
        found = [matrix for _, source, wanted in uses for matrix in _one_by_one(checkpoint, name, source, wanted)]
    for matrix in found:
        if matrix.array.shape[0] % _WORD:
            raise CheckpointError(f"{checkpoint.path}: {matrix.module} has {matrix.array.shape[0]} outputs. Legal: a multiple of {_WORD}.")
    yield from found


def _one_by_one(checkpoint: Checkpoint, name: str, source: Source, shape: Shape) -> Iterator[Matrix]:
    stored = _Stored(checkpoint.tensors)
    apart = [one for one in source.known if isinstance(one, Stack)] if isinstance(source, FirstOf) else []
    if not isinstance(source, FirstOf) or not apart or len(shape) != 3:
        raise CheckpointError(f"{checkpoint.path}: {name} is {list(shape)}, which has no name for each matrix. Legal: modules' weights.")
    for module, array in zip(apart[0].names, present(source, stored.has).read(stored, shape), strict=True):
        yield Matrix(checkpoint.path, module.removesuffix(".weight"), array)


def _file(path: Path, matrices: Mapping[str, list[Matrix]], rounding: _Rounding) -> Weights:
    """A file of the checkpoint as it is written: its tensors in their order, the packed ones in the place of what they are made of."""
    file = MappedFile(path)
    header = read_header(file)
    pieces, said = [], []
    for entry in header.entries:
        if entry.name in matrices:
            for matrix in matrices[entry.name]:
                for piece, dtype, shape in rounding.pieces(matrix):
                    pieces.append(piece)
                    said.append((piece.name, dtype, shape, piece.nbytes))
        else:
            pieces.append(Piece(entry.name, entry.end - entry.begin, partial(_copied, file, entry)))
            said.append((entry.name, entry.dtype, entry.shape, entry.end - entry.begin))
    return Weights(path.name, written(said, header.metadata), pieces)


def _copied(file: MappedFile, entry: Entry) -> Iterator[np.ndarray]:
    for at in range(entry.begin, entry.end, _COPIED):
        yield file.view(at, min(_COPIED, entry.end - at), f"tensor {entry.name}")


def _index(checkpoint: Checkpoint, weights: list[Weights]) -> dict[str, bytes]:
    """The index of a checkpoint that has one, of what is written; {} of another."""
    place = checkpoint.path if checkpoint.path.is_file() else checkpoint.path / checkpoint.file.index
    if not place.name.endswith(".index.json") or not place.is_file():
        return {}
    said = read_json(place).get("metadata")
    total = sum(piece.nbytes for one in weights for piece in one.pieces)
    metadata = (said if isinstance(said, dict) else {}) | {"total_size": total}
    places = {piece.name: one.name for one in weights for piece in one.pieces}
    return {place.name: json.dumps({"metadata": metadata, "weight_map": dict(sorted(places.items()))}, indent=2).encode()}


def _words(numbers: np.ndarray) -> np.ndarray:
    """int32 words (..., n) of numbers of 4 bits, uint8 (..., 8 n), the first in the lowest bits."""
    return np.ascontiguousarray(numbers[..., 0::2] | numbers[..., 1::2] << 4).view("<u4")


def _raw(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
