"""ONNX graphs of products with packed weights, byte by byte as onnxruntime's quantiser lays them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx, which reads the files, is not installed")
pytest.importorskip("iron_onnx", reason="iron-onnx is not installed")

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "float16": 10, "bfloat16": 16, "uint4": 21, "int4": 22}


def tensor(name: str, array: np.ndarray, kind: str = "", shape: Any = None) -> Any:
    """An initialiser of these bytes."""
    made = onnx.TensorProto(name=name, data_type=TYPES[kind or str(array.dtype)], dims=array.shape if shape is None else shape)
    made.raw_data = np.ascontiguousarray(array).tobytes()
    return made


def nibbles(table: np.ndarray) -> np.ndarray:
    """uint8: numbers one after another, two in a byte, the first in the low half; a zero behind an odd one."""
    flat = np.append(table.reshape(-1), [0] * (table.size % 2)).astype(np.int64) & 15
    return (flat[0::2] | flat[1::2] << 4).astype(np.uint8)


def n_bits(name: str, ints: Any, scales: Any, zeros: Any, bits: int = 4, node: str = "", flat: bool = False, **said: Any) -> list[Any]:
    """The node and initialisers of a MatMulNBits. zeros: None, integers, or an array of the scales' dtype."""
    n, k = ints.shape
    groups = scales.shape[1]
    packed = np.stack([nibbles(row) for row in ints]) if bits == 4 else ints.astype(np.uint8)
    inputs = ["x", f"{name}_Q{bits}", f"{name}_scales"]
    found = [
        tensor(inputs[1], packed.reshape(n, groups, -1)), tensor(inputs[2], scales.reshape(-1) if flat else scales),
    ]  # fmt: skip
    if zeros is not None:
        inputs.append(f"{name}_zero_points")
        if zeros.dtype == scales.dtype:
            stored = zeros
        else:
            stored = np.stack([nibbles(row) for row in zeros]) if bits == 4 else zeros.astype(np.uint8)
        found.append(tensor(inputs[-1], stored.reshape(-1) if flat else stored))
    entries = dict(K=k, N=n, bits=bits, block_size=k // groups) | said
    return [onnx.helper.make_node("MatMulNBits", inputs, [f"{name}_y"], name=node, domain="com.microsoft", **entries), *found]


def linear(
    name: str, ints: Any, scales: Any, zeros: Any, kind: str = "uint4", axis: int = 0, node: str = "", dims: Any = None, **said: Any
) -> list[Any]:
    """Nodes and initialisers of a DequantizeLinear of numbers (n, k), blocks along k, and the MatMul behind it. axis 1: the matrix is
    stored (n, k), and turned before it multiplies. dims: what is said of the shape of the integers."""
    size = ints.shape[1] // scales.shape[1]
    if axis % 2 == 0:  # also of an axis that there is not
        ints, scales, zeros = ints.T, scales.T, None if zeros is None else zeros.T
    raw = nibbles(ints) if kind.endswith("4") else ints.astype(kind)
    inputs = [f"{name}_DQ_Q4", f"{name}_DQ_scales"]
    found = [tensor(inputs[0], raw, kind, dims or ints.shape), tensor(inputs[1], scales)]
    if zeros is not None:
        inputs.append(f"{name}_DQ_zero_points")
        found.append(tensor(inputs[-1], nibbles(zeros) if kind.endswith("4") else zeros.astype(kind), kind, zeros.shape))
    nodes = [onnx.helper.make_node("DequantizeLinear", inputs, [f"{name}_dq"], **dict(axis=axis, block_size=size) | said)]
    if axis % 2 == 1:
        nodes.append(onnx.helper.make_node("Transpose", [f"{name}_dq"], [f"{name}_t"], perm=[1, 0]))
    nodes.append(onnx.helper.make_node("MatMul", ["x", f"{name}_t" if axis % 2 == 1 else f"{name}_dq"], [f"{name}_y"], name=node))
    return [*nodes, *found]


def dense(name: str, array: np.ndarray, node: str = "") -> list[Any]:
    """A MatMul by a matrix (n, k), stored (k, n); a vector, or a table without a product, as it is."""
    if array.ndim == 1 or not node:
        return [tensor(name, array)]
    return [onnx.helper.make_node("MatMul", ["x", name], [f"{name}_y"], name=node), tensor(name, array.T)]


def saved(path: Path, parts: list[Any], config: Any = None, external: bool = False) -> Path:
    """A folder with model.onnx of these nodes and initialisers. external: tensors lie in model.onnx.data."""
    path.mkdir(parents=True)
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    graph = onnx.helper.make_graph(nodes, "g", [], [], [part for part in parts if not isinstance(part, onnx.NodeProto)])
    model = onnx.helper.make_model(graph, producer_name="tests")
    if external:
        data = b""
        for one in model.graph.initializer:
            raw = one.raw_data
            one.ClearField("raw_data")
            one.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", "model.onnx.data"), ("offset", len(data)), ("length", len(raw))):
                entry = one.external_data.add()
                entry.key, entry.value = key, str(value)
            data += raw + bytes(-len(raw) % 64)
        (path / "model.onnx.data").write_bytes(data)
    (path / "model.onnx").write_bytes(model.SerializeToString())
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path
