"""LoRA adapters as PEFT writes them, byte by byte, and what they add."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.q4nx.folders import NAMES, container

#: What PEFT writes of an adapter where nothing else was asked for.
CONFIG: dict[str, Any] = {
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny", "r": 4, "lora_alpha": 8, "lora_dropout": 0.05,
    "bias": "none", "fan_in_fan_out": False, "init_lora_weights": True, "inference_mode": True, "use_rslora": False, "use_dora": False,
    "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {}, "target_modules": ["q_proj"], "layers_to_transform": None,
}  # fmt: skip

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]


def drawn(shapes: Mapping[str, tuple[int, int]], rank: int = 4, seed: int = 0) -> Pairs:
    """A (rank, K) and B (N, rank) by module, for matrices (N, K) of which each changes by about a tenth."""
    rng = np.random.default_rng(seed)
    return {
        module: (
            (rng.standard_normal((rank, columns)) * columns**-0.5).astype(np.float32),
            (rng.standard_normal((rows, rank)) * 0.2 / rank).astype(np.float32),
        )
        for module, (rows, columns) in shapes.items()
    }


def tensors_of(pairs: Pairs, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Under PEFT's names, in one dtype."""
    found = {}
    for module, (a, b) in pairs.items():
        found[f"base_model.model.{module}.lora_A.weight"] = a.astype(dtype)
        found[f"base_model.model.{module}.lora_B.weight"] = b.astype(dtype)
    return found


def write(path: Path, tensors: Mapping[str, np.ndarray], **changes: Any) -> Path:
    """A folder of these tensors; `changes` to its config."""
    path.mkdir(parents=True)
    raw = {name: (NAMES.get(str(t.dtype), str(t.dtype)), list(t.shape), t.tobytes()) for name, t in tensors.items()}
    container(path / "adapter_model.safetensors", raw)
    (path / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    return path


def write_gguf(path: Path, pairs: Pairs, alpha: float = 8.0, kind: Any = np.float32, **metadata: Any) -> Path:
    """An adapter as llama.cpp's converter writes it, of pairs by the names of a GGUF's tensors; `metadata` replaces entries or, with None,
    drops them (`.` as `__`)."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    entries = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": alpha}
    for key, value in (entries | {key.replace("__", "."): value for key, value in metadata.items()}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_float32(key, value)
    for name, (a, b) in pairs.items():
        writer.add_tensor(f"{name}.lora_a", a.astype(kind))
        writer.add_tensor(f"{name}.lora_b", b.astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
