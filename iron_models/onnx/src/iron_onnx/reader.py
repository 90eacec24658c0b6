"""`OnnxFile`: the weights of a graph, under the names that its modules had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from iron_core import Dense
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.bounded_json import read_json
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.tensors import Tensors
from iron_onnx import blocks
from iron_onnx.initializers import Files, Initializer
from iron_onnx.names import weight_name

#: Bytes of a file that may be read; protobuf has no larger messages.
_MOST = 2 << 30
#: Folders that have others of these are read as those.
_OTHERS = ("*.safetensors", "*.safetensors.index.json", "*.gguf", "pytorch_model*.bin", "*.q4nx")
_CONTRIB = "com.microsoft"


class OnnxFile:
    """An open ONNX file, or the folder with one.

    `tensors`: name -> (shape, Format, array), of the graph's initialisers that are floats or integers in blocks: what a MatMul multiplies
    by from the right as (N, K), as modules have it, named as the module was or, where the initialiser does not say it, by the
    node's path. `metadata`: config.json, if there is one, under "config".
    """

    kind = "onnx"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        folder = self.path if self.path.is_dir() else self.path.parent
        file = _only(self.path)
        self.metadata: dict[str, Any] = {}
        if (folder / "config.json").exists():
            self.metadata["config"] = read_json(folder / "config.json")
        model = _loaded(file)
        self.tensors = GraphWeights(model.graph, Files(folder), file).tensors
        made = str(model.producer_name)[:40]
        self.described = "ONNX" + (f" of {made}" if made.isprintable() and made else "")

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it an .onnx file, or a folder with any and no weights of another kind?"""
        path = Path(path)
        if path.is_dir():
            return any(path.glob("*.onnx")) and not any(any(path.glob(other)) for other in _OTHERS)
        return path.suffix == ".onnx"

    @classmethod
    def open(cls, path: str | Path) -> OnnxFile:
        """Read the graph and where its tensors are; CheckpointError if it is damaged, or the package onnx is not installed."""
        return cls(path)


def _only(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.onnx"))
    named = [file for file in found if file.name == "model.onnx"] or found
    if len(named) > 1:
        shown = ", ".join(file.name for file in found[:4])
        raise CheckpointError(f"{path}: holds {len(found)} ONNX files ({shown}) and no model.onnx; name one of them.")
    return named[0]


def _loaded(file: Path) -> Any:
    """The model that a file describes, its external data where it lies."""
    if MappedFile(file).size > _MOST:
        raise CheckpointError(f"{file}: more than {_MOST} bytes, which no ONNX file has.")
    try:
        import onnx
    except ImportError:
        raise CheckpointError(f"{file}: reading ONNX takes the package onnx; install it with: pip install 'iron-onnx[onnx]'.") from None
    return onnx.load(str(file), load_external_data=False)


class GraphWeights:
    """The tensors of a graph: what it holds, and who multiplies by it."""

    def __init__(self, graph: Any, files: Files, path: Path) -> None:
        self.path, self.nodes = path, list(graph.node)
        self.given = {proto.name: files.initializer(proto) for proto in graph.initializer}
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        for node in self.nodes:
            for i, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, i))
        self.tensors = Tensors()
        self._used: set[str] = set()
        for node in self.nodes:
            if node.op_type == "MatMulNBits" and node.domain == _CONTRIB:
                self._add(self._weight_of(node, 1), self._matmul, node)
            elif node.op_type == "DequantizeLinear" and node.input and node.input[0] in self.given:
                self._add(self._weight_of(node, 0), self._dequantized, node)
            elif node.op_type in ("GatherBlockQuantized", "MatMulBnb4") and node.domain == _CONTRIB:
                self._refuse(self._weight_of(node, 0 if node.op_type[0] == "G" else 1), f"is of {node.op_type}, which is not read", node)
        for name, one in self.given.items():
            if name not in self._used:
                self._add_plain(name, one)

    def _weight_of(self, node: Any, at: int) -> str:
        """What the weight is called that a node has for an input, through the product that it is made for."""
        name = str(node.input[at]) if len(node.input) > at else ""
        product = node
        while product.op_type in ("DequantizeLinear", "Transpose", "Cast") and self.readers.get(product.output[0]):
            product = self.readers[product.output[0]][0][0]
        return weight_name(name, str(product.name if product.op_type in ("MatMul", "Gemm", "MatMulNBits") else ""))

    def _add(self, name: str, make: Callable[[Any, str], blocks.Quantized], node: Any) -> None:
        """Put in the weight that `make` gives; or the reason why not."""
        self._used.update(node.input)
        try:
            if name in self.tensors.names:
                raise CheckpointError("is there twice.")
            self.tensors[name] = make(node, name).tensor()
        except CheckpointError as error:
            self._refuse(name, str(error).removesuffix("."), node)

    def _refuse(self, name: str, why: str, node: Any) -> None:
        self._used.update(node.input)
        self.tensors.pop(name, None)
        self.tensors.refused[name] = f"{self.path}: {name[:80]} {why}."

    def _input(self, node: Any, at: int, needed: bool = True) -> Initializer | None:
        name = node.input[at] if len(node.input) > at else ""
        if name in self.given:
            return self.given[name]
        if name or needed:
            raise CheckpointError(f"has an input {at} that is computed, or missing. Legal: an initialiser.")
        return None

    def _matmul(self, node: Any, name: str) -> blocks.Quantized:
        said = _said(node)
        if not {"K", "N", "block_size"} <= said.keys():
            raise CheckpointError("is of a MatMulNBits without K, N and block_size.")
        bias = self._input(node, 5, needed=False)
        if bias is not None:
            self.tensors[f"{name.removesuffix('.weight')}.bias"] = (bias.shape, Dense(bias.array().dtype), bias.array())
        b, scale = self._input(node, 1), self._input(node, 2)
        assert b is not None and scale is not None
        return blocks.matmul_n_bits(name, said, b, scale, self._input(node, 3, needed=False), self._input(node, 4, needed=False))

    def _dequantized(self, node: Any, name: str) -> blocks.Quantized:
        said = _said(node)
        x, scale = self._input(node, 0), self._input(node, 1)
        assert x is not None and scale is not None
        axis = said.get("axis", 1)
        if axis % 2 == 1 and any(reader.op_type == "MatMul" and i == 1 for reader, i in self.readers.get(node.output[0], ())):
            raise CheckpointError("is in blocks along its outputs, which no product takes. Legal: along what is summed, axis 0.")
        return blocks.dequantize_linear(name, x, scale, self._input(node, 2, needed=False), axis, said.get("block_size", 0))

    def _add_plain(self, name: str, one: Initializer) -> None:
        """Floats, those that a MatMul multiplies by as rows; any other is of the graph's own."""
        readers = self.readers.get(name, [])
        product = next((node for node, i in readers if node.op_type == "MatMul" and i == 1), None)
        turned = next((node for node, i in readers if node.op_type == "Transpose" and i == 0), None)
        to = self.readers.get(turned.output[0], [(None, 0)])[0][0] if turned is not None else None
        multiplies = to if product is None else product
        called = weight_name(name, "" if multiplies is None else str(multiplies.name))
        if not one.floats:
            self.tensors.refused[name] = f"{self.path}: {name[:80]} is of {one.kind}, and of no product."
            self.tensors.spare.add(name)
            return
        try:
            array = one.array()
        except CheckpointError as error:
            self.tensors.refused[called] = f"{self.path}: {error}"
            return
        if product is not None and array.ndim == 2:
            array = np.ascontiguousarray(array.T)
        if called in self.tensors.names:
            called = name
        self.tensors[called] = (array.shape, Dense(array.dtype), array)
        if not called.endswith((".weight", ".bias")):
            self.tensors.spare.add(called)


def _said(node: Any) -> dict[str, int]:
    """The whole numbers that a node says of itself."""
    return {str(entry.name): int(entry.i) for entry in node.attribute if entry.type == 2}
