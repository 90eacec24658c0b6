"""A tiny model of each family, made by transformers, as the folders and the GGUFs that people have of such models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_gemma3.model import Gemma3
from iron_gpt2.model import GPT2
from iron_lm import loading
from iron_lm.checkpoints.sources import source_of
from iron_lm.decoder_config import DecoderConfig
from iron_lm.mixture_config import MixtureConfig
from iron_mistral.model import Mistral
from iron_olmo2.model import Olmo2
from iron_phi3.model import Phi3
from iron_qwen2.model import Qwen2
from iron_qwen2_moe.model import Qwen2Moe
from iron_qwen3.model import Qwen3
from iron_qwen3_5.model import Qwen35
from iron_qwen3_moe.model import Qwen3Moe
from tests.families import qwen35_gguf

DATA = Path(__file__).parents[1] / "data"
FAMILIES: dict[str, Any] = {
    "qwen2": Qwen2, "qwen3": Qwen3, "mistral": Mistral, "gemma3": Gemma3, "olmo2": Olmo2, "phi3": Phi3, "gpt2": GPT2,
    "qwen3_5": Qwen35, "qwen3_5_moe": Qwen35, "qwen3_next": Qwen35, "qwen2_moe": Qwen2Moe, "qwen3_moe": Qwen3Moe,
}  # fmt: skip
#: What a GGUF calls a family, where that is another name.
ARCHITECTURES = {
    "mistral": "llama", "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe", "qwen3_next": "qwen3next", "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
}  # fmt: skip


#: Matrices that the converter leaves in float32.
UNQUANTIZED = ("position_embd.weight", "ssm_conv1d.weight", "ffn_gate_inp.weight")


class Family:
    """config.json, weights, ids, and the logits transformers gave after each id."""

    def __init__(self, name: str, folder: Path) -> None:
        stored = np.load(DATA / f"tiny_{name}.npz")
        self.name, self.family, self.folder = name, FAMILIES[name], folder
        self.json: dict[str, Any] = json.loads(str(stored["config"]))
        self.weights = {key[2:]: stored[key].astype(np.float32) for key in stored if key.startswith("w/")}
        self.ids = [int(i) for i in stored["ids"]]
        self.logits = stored["logits"]

    def write(self, dtype: Any = np.float32, **changes: Any) -> Path:
        """A new safetensors folder of it; `changes` replace entries of config.json or, with None, drop them."""
        save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
        path = self.folder / f"{self.name}-{len(list(self.folder.iterdir()))}"
        path.mkdir()
        weights = {key: value if value.dtype.kind == "i" else value.astype(dtype) for key, value in self.weights.items()}
        save.save_file(weights, path / "model.safetensors")
        entries = {key: value for key, value in (self.json | changes).items() if value is not None}
        (path / "config.json").write_text(json.dumps(entries))
        return path

    def load(self, path: Path | None = None, **options: Any) -> loading.Loaded:
        """Loaded as its command line does, in float32 unless told otherwise."""
        options = dict(dtype="float32", max_seq_len=128) | options
        return loading.load(self.family, str(path or self.write()), **options)

    def model(self, **changes: Any) -> Any:
        """The graph of it; `changes` to how it is run."""
        return self.load().model(**changes)

    def gguf(self, kind: str = "F16", loaded: loading.Loaded | None = None, **metadata: Any) -> Path:
        """A new GGUF of it, or of what is `loaded`, norms whole; `metadata` (`.` as `__`) replaces entries or, with None,
        drops them."""
        loaded = self.load() if loaded is None else loaded
        path = self.folder / f"{self.name}-{len(list(self.folder.iterdir()))}.gguf"
        return write_gguf(path, self.name, loaded.config, loaded.exact, kind, {k.replace("__", "."): v for k, v in metadata.items()})


def write_gguf(path: Path, name: str, c: DecoderConfig, weights: Any, kind: str, metadata: dict[str, Any]) -> Path:
    """A GGUF as llama.cpp's converter makes it of these weights, under its own names, matrices of a ggml type."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    entries: dict[str, Any] = {
        "vocab_size": c.vocab_size,
        "context_length": c.max_positions,
        "embedding_length": c.hidden_size,
        "block_count": c.num_layers,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_heads,
        "attention.head_count_kv": c.num_kv_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        f"attention.layer_norm_{'' if name == 'gpt2' else 'rms_'}epsilon": float(c.norm_epsilon),
    }
    vectors: dict[str, Any] = {}
    if c.rotary is not None:
        entries["rope.freq_base"] = float(c.rotary.base)
    if c.window is not None:
        entries["attention.sliding_window"] = c.window
    if name == "gemma3":
        entries |= {
            "attention.sliding_window_pattern": 3,
            "attention.scale": float(c.score_scale or 0),
            "final_logit_softcapping": c.logit_cap,
        }
    if isinstance(c, MixtureConfig) and c.num_experts is not None:
        entries |= {"expert_count": c.num_experts, "expert_used_count": c.chosen, "expert_feed_forward_length": c.expert_size}
        entries |= {"expert_shared_feed_forward_length": c.shared_size} if c.shared_size else {}
    if c.rotary is not None and c.rotary.scaling is not None:
        scaling, (first, *others) = c.rotary.scaling
        if scaling == "longrope":
            entries |= {"rope.scaling.original_context_length": int(first), "rope.scaling.attn_factor": others[0]}
            factors = np.array(others[1:], np.float32).reshape(2, -1)
            vectors = {"rope_factors_short.weight": factors[0], "rope_factors_long.weight": factors[1]}
        else:
            entries |= {"rope.scaling.type": scaling, "rope.scaling.factor": first}
    if FAMILIES[name] is Qwen35:
        entries |= qwen35_gguf.metadata(c)
    architecture = ARCHITECTURES.get(name, name)
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in (entries | metadata).items():
        if isinstance(value, bool):  # None is left out
            writer.add_bool(f"{architecture}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{architecture}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{architecture}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{architecture}.{key}", value)
    if FAMILIES[name] is Qwen35:
        tensors = {stored: [values] for stored, values in qwen35_gguf.tensors(c, weights, name == "qwen3_next").items()}
    else:
        tensors = _renamed(gguf, name, architecture, c, weights, vectors)
    for stored, parts in tensors.items():
        values = np.concatenate(parts)
        quant = gguf.GGMLQuantizationType["F32" if values.ndim == 1 or stored.endswith(UNQUANTIZED) else kind]
        writer.add_tensor(stored, gguf.quantize(values, quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _renamed(gguf: Any, name: str, architecture: str, c: DecoderConfig, weights: Any, vectors: dict[str, Any]) -> dict[str, Any]:
    """Tensors under llama.cpp's names, each with the weights that it is made of."""
    names = FAMILIES[name].names("safetensors", c)
    known = {text: arch for arch, text in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    converted = gguf.get_tensor_name_map(known, c.num_layers)
    tensors: dict[str, list[np.ndarray]] = {name: [numbers] for name, numbers in vectors.items()}
    for path_within, array in weights.items():
        values = np.asarray(array).astype(np.float32)
        if architecture == "llama" and path_within.endswith((".q", ".k")):
            values = neighbouring(values, c.head_dim)
        theirs = source_of(names, path_within).names
        last = re.sub(r"experts\.\d+\.", "experts.", theirs[-1])  # the converter stacks what is stored one by one
        values = values[0] if path_within.endswith(".opening") else values
        stored = converted.get_name(last if ".experts." in last else theirs[0], (".weight", ".bias"))
        tensors.setdefault(stored, []).append(values)  # what is one tensor there is one here
    return tensors


def neighbouring(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of which the pairs that turn lie half a head apart, reordered so that they are neighbours."""
    return rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


@pytest.fixture(scope="session", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Each of them in turn."""
    return Family(request.param, tmp_path_factory.mktemp("families"))


def _one(name: str) -> Any:
    @pytest.fixture(scope="session", name=name)
    def one(tmp_path_factory: pytest.TempPathFactory) -> Family:
        return Family(name, tmp_path_factory.mktemp("families"))

    return one


qwen2, qwen3, mistral, gemma3, olmo2, phi3, gpt2, qwen3_5, qwen3_5_moe, qwen3_next, qwen2_moe, qwen3_moe = map(_one, FAMILIES)
