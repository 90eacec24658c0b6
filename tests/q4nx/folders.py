"""Q4NX folders, written byte by byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from iron_core import PackedArray
from iron_core.declare.formats import Q4NX_ZERO

NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 320, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
}  # fmt: skip


def container(path: Path, tensors: dict[str, tuple[str, list[int], bytes]], metadata: Any = None, gap: int = 0, **others: Any) -> Path:
    """A file of tensors: name -> (dtype, shape, bytes). gap: bytes before each. others: entries that are no tensors."""
    header: dict[str, Any] = dict(others)
    if metadata is not None:
        header["__metadata__"] = metadata
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        data += b"\xff" * gap
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    if gap:  # not in the order of their places
        header = dict(reversed(header.items()))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # as the safetensors package has it
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(array: Any, rank: int = 2) -> tuple[str, list[int], bytes]:
    """A tensor as a file of FastFlowLM's has it; rank: of the header's shape, 2 or 3."""
    if not isinstance(array, PackedArray):
        return NAMES[str(array.dtype)], list(array.shape), array.tobytes()
    if array.format is Q4NX_ZERO:
        return "Q4NX", list(array.shape), array.data.tobytes()
    chunks = [array.shape[0] // 32, array.data.shape[-1] // array.format.block_bytes]
    return "I8", [*(chunks if rank == 3 else [chunks[0] * chunks[1]]), array.format.block_bytes], array.data.tobytes()


def matrices(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers of every matrix and vector of a Llama's layers, by Hugging Face's names."""
    rng, c = np.random.default_rng(seed), config
    width, hidden, queries, keys = (
        c["hidden_size"], c["intermediate_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"],
    )  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (c["vocab_size"], width), "model.norm.weight": (width,)}
    shapes["lm_head.weight"] = (c["vocab_size"], width)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes |= {f"{at}self_attn.{x}_proj.weight": (keys if x in "kv" else queries, width) for x in "qkv"}
        shapes |= {f"{at}self_attn.o_proj.weight": (width, queries), f"{at}mlp.down_proj.weight": (width, hidden)}
        shapes |= {f"{at}mlp.{x}_proj.weight": (hidden, width) for x in ("gate", "up")}
        shapes |= {f"{at}{x}_layernorm.weight": (width,) for x in ("input", "post_attention")}
    return {
        name: (rng.standard_normal(shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1) + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }


def quantized(numbers: dict[str, np.ndarray], format: Any, others: dict[str, Any] | None = None) -> dict[str, Any]:
    """Matrices in a format but the table, which is bfloat16 as vectors are; others: by name, formats of some."""
    import ml_dtypes

    found: dict[str, Any] = {}
    for name, values in numbers.items():
        own = (others or {}).get(name, format)
        whole = values.ndim == 1 or (name == "model.embed_tokens.weight" and name not in (others or {}))
        found[name] = values.astype(ml_dtypes.bfloat16) if whole else own.quantize(values)
    return found


def folder(path: Path, tensors: dict[str, Any], config: dict[str, Any] = CONFIG, *, rank: int = 2, **options: Any) -> Path:
    """A folder of these tensors. options: of `container`; `config` None leaves config.json out."""
    path.mkdir()
    container(path / "model.q4nx", {name: t if isinstance(t, tuple) else entry(t, rank) for name, t in tensors.items()}, **options)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path
