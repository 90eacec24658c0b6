"""What GPTQ's and AWQ's public packers make of a matrix, number by number, from what is written down of their layouts; and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.q4nx.folders import container

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def drawn(
    n: int, k: int, group: int, bits: int = 4, symmetric: bool = False, seed: int = 0, scale: Any = np.float16
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integers (n, k), scales and zero points (n, groups) that rounding numbers around 0 gives."""
    rng, top = np.random.default_rng(seed), (1 << bits) - 1
    w = rng.standard_normal((n, k // group, group)) * k**-0.5
    low, high = np.minimum(w.min(-1), 0), np.maximum(w.max(-1), 0)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    scales = ((high - low) / top).astype(scale)
    wide = scales.astype(np.float64)
    zeros = np.full(scales.shape, (top + 1) // 2) if symmetric else np.clip(np.rint(-low / wide), 0, top).astype(int)
    ints = np.clip(np.rint(w / wide[..., None]) + zeros[..., None], 0, top).astype(int)
    return ints.reshape(n, k), scales, zeros


def by_activations(ints: np.ndarray, group: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What a packer that took inputs by the size of their activations (desc_act) makes of integers (n, k) in the order in which it took
    them: the integers in the inputs' own order, and the group of each."""
    taken = np.argsort(-np.random.default_rng(seed).random(ints.shape[1]))
    back = np.argsort(taken)
    return ints[:, back], (back // group).astype(np.int32)


def numbers(ints: np.ndarray, scales: np.ndarray, zeros: np.ndarray, g_idx: np.ndarray | None = None) -> np.ndarray:
    """float32 (n, k): scale * (q - zero), of the group of each column."""
    k = ints.shape[1]
    order = np.arange(k) * scales.shape[1] // k if g_idx is None else g_idx
    return scales.astype(np.float32)[:, order] * (ints - zeros[:, order]).astype(np.float32)


def words(table: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> np.ndarray:
    """int32 (rows, columns * bits / 32): numbers of a row in words, the first, or those of `order`, from the lowest bits on."""
    per = 32 // bits
    rows, columns = table.shape
    out = np.zeros((rows, columns // per), np.uint32)
    for at in range(columns // per):
        for i in range(per):
            number = table[:, at * per + (i if order is None else order[i])].astype(np.uint32)
            out[:, at] |= number << np.uint32(i * bits)
    return out.view(np.int32)


def gptq(
    ints: np.ndarray, scales: np.ndarray, zeros: np.ndarray, convention: str = "v1", bits: int = 4, g_idx: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """AutoGPTQ's and GPTQModel's tensors of a matrix (n, k): words of qweight down the inputs, of qzeros across the outputs."""
    k = ints.shape[1]
    stored = zeros if convention == "v2" else (zeros - 1) % (1 << bits)
    return {
        "qweight": np.ascontiguousarray(words(ints, bits).T),
        "qzeros": words(np.ascontiguousarray(stored.T), bits),
        "scales": np.ascontiguousarray(scales.T),
        "g_idx": (np.arange(k) * scales.shape[1] // k if g_idx is None else g_idx).astype(np.int32),
    }


def awq(ints: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> dict[str, np.ndarray]:
    """AutoAWQ's tensors of a matrix, version gemm: words of both across the outputs, in its order."""
    return {
        "qweight": words(np.ascontiguousarray(ints.T), 4, AWQ_ORDER),
        "qzeros": words(np.ascontiguousarray(zeros.T), 4, AWQ_ORDER),
        "scales": np.ascontiguousarray(scales.T),
    }


def config(method: str, group: int, **more: Any) -> dict[str, Any]:
    """A quantization_config as the packers write it."""
    if method == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"} | more
    return {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, "sym": False} | more


_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "int64": "I64"}


def folder(path: Path, tensors: dict[str, np.ndarray], packed: dict[str, Any] | None, model: Any = None, shards: int = 1) -> Path:
    """A folder of these tensors; `packed` is its quantization_config, `model` the rest of config.json. shards: files it is in."""
    path.mkdir()
    raw = {
        name: (_NAMES[str(t.dtype)], list(t.shape), np.ascontiguousarray(t).tobytes())
        for name, t in tensors.items()
    }
    names = list(raw)
    if shards == 1:
        container(path / "model.safetensors", raw)
    else:
        files = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(names)}
        for file in set(files.values()):
            container(path / file, {name: raw[name] for name in names if files[name] == file})
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    entries = dict(model or {"model_type": "llama"}) | ({} if packed is None else {"quantization_config": packed})
    (path / "config.json").write_text(json.dumps(entries))
    return path


BF16 = np.dtype(ml_dtypes.bfloat16)
