"""Models of Q4NX folders: the numbers are those that the chunks stand for, under the names and in the scales of FastFlowLM."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import iron_lm
from iron_core import PackedArray
from iron_core.declare.formats import Q4NX, Q4NX_Q8, Q4NX_SIGNED, Q4NX_ZERO
from iron_core.errors import CheckpointError, UsageError
from iron_gemma3.model import Gemma3
from iron_host.backend import HostBackend
from iron_llama.model import Llama
from iron_lm import loading, quantizing
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.widening import dense
from iron_lm.family import Family
from iron_lm.generation.session import Session
from iron_qwen3.model import Qwen3
from tests.q4nx.folders import CONFIG, folder, matrices, quantized

IDS = np.random.default_rng(0).integers(0, 96, 24).tolist()
GEMMA = {
    "model_type": "gemma3_text", "num_hidden_layers": 2, "sliding_window": 8, "query_pre_attn_scalar": 32, "rope_local_base_freq": 10000.0,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": None, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
FAMILIES: dict[str, tuple[type[Family], dict[str, Any], tuple[str, ...]]] = {
    "llama": (Llama, CONFIG, ()),
    "qwen3": (Qwen3, CONFIG | {"model_type": "qwen3"}, ("q", "k")),
    "gemma3": (Gemma3, CONFIG | GEMMA, ("q", "k")),
}


def model(name: str, format: Any = Q4NX, others: dict[str, Any] | None = None) -> tuple[type[Family], dict[str, Any], dict[str, Any]]:
    """Family, config.json and tensors of a Q4NX folder."""
    family, config, normed = FAMILIES[name]
    numbers, rng = matrices(config), np.random.default_rng(1)
    for i in range(config["num_hidden_layers"]):
        at, width = f"model.layers.{i}.", config["hidden_size"]
        numbers |= {f"{at}self_attn.{x}_norm.weight": 1 + 0.1 * rng.standard_normal(config["head_dim"]) for x in normed}
        if name == "gemma3":
            numbers |= {f"{at}{x}_feedforward_layernorm.weight": 1 + 0.1 * rng.standard_normal(width) for x in ("pre", "post")}
    tensors = quantized(numbers, format, others)
    if name == "gemma3":
        scaled = numbers["model.embed_tokens.weight"] * np.float32(math.sqrt(config["hidden_size"]))
        tensors["model.embed_tokens.weight"] = scaled.astype(ml_dtypes.bfloat16)
    return family, config, tensors


def plain(path: Path, name: str, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """The same numbers as a Hugging Face folder of float32."""
    save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
    path.mkdir()
    wide = {k: (t.dequantize() if isinstance(t, PackedArray) else t.astype(np.float32)) for k, t in tensors.items()}
    if name == "gemma3":
        wide |= {k: v - np.float32(1) for k, v in wide.items() if "norm" in k}
        wide["model.embed_tokens.weight"] /= np.float32(math.sqrt(config["hidden_size"]))
    save.save_file(wide, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": "lm_head.weight" not in tensors}))
    return path


def load(family: type[Family], path: Path, said: str | None = "Q4_1", **options: Any) -> loading.Loaded:
    return loading.load(family, Checkpoint.open(path, quantized_from=said), **dict(activations="exact", max_seq_len=32) | options)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_is_that_of_its_dequantized_numbers(tmp_path, name):
    """Names, norms that are whole, the head's own matrix, Gemma's scaled embedding: as the same numbers in a safetensors folder."""
    family, config, tensors = model(name)
    stored = load(family, folder(tmp_path / "m", tensors, config))
    wide = loading.load(family, plain(tmp_path / "plain", name, config, tensors), max_seq_len=32)
    assert stored.stored == "q4nx as in the file" and not stored.config.tied
    got, want = stored.twin(IDS), wide.twin(IDS)
    assert np.array_equal(got, want) if name != "gemma3" else np.abs(got - want).max() < 1e-5
    logits = Session(stored.model(), backend=HostBackend(strict=True)).logits(IDS)
    assert np.abs(logits - want[-1]).max() < 5e-3


@pytest.mark.parametrize(("said", "format"), [("Q4_0", Q4NX_SIGNED), (None, Q4NX_ZERO), (None, Q4NX_Q8)], ids=str)
def test_every_kind_that_planes_say_runs_as_it_is_stored(tmp_path, said, format):
    """By kernels, where the planes are enough; activations rounded to int8 too."""
    family, config, tensors = model("llama", format)
    path = folder(tmp_path / "m", tensors)
    stored = load(family, path, said)
    want = loading.load(family, plain(tmp_path / "plain", "llama", config, tensors), max_seq_len=32).twin(IDS)
    assert stored.stored == f"{format.name} as in the file" and np.array_equal(stored.twin(IDS), want)
    assert np.abs(Session(stored.model(), backend=HostBackend(strict=True)).logits(IDS) - want[-1]).max() < 5e-3
    rounded = load(family, path, said, activations="int8_block")
    assert np.abs(Session(rounded.model(), backend="reference").logits(IDS[:8]) - want[7]).max() < 0.2


def test_integers_are_made_of_the_numbers_that_are_said(tmp_path, monkeypatch):
    """Those that were kept when the same file was read otherwise are others."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    family, _, tensors = model("llama", Q4NX_SIGNED)
    path = folder(tmp_path / "m", tensors)
    for said in ("Q4_1", "Q4_0", "Q4_1"):
        loaded = load(family, path, said, quantize="int8", activations=None)
        down = loaded.weights["layers.0.ffn.down"]
        assert np.array_equal(down.data, quantizing.quantized("", [loaded.exact["layers.0.ffn.down"]]).data), said
    assert len(list((tmp_path / "cache" / "iron" / "weights").glob("[0-9a-f]*"))) == 2


def test_a_table_of_chunks_is_put_in_rows(tmp_path):
    """They are taken one by one, which no chunk gives."""
    table = {"model.embed_tokens.weight": Q4NX_Q8}
    family, config, tensors = model("llama", Q4NX_Q8, table)
    del tensors["lm_head.weight"]
    stored = load(family, folder(tmp_path / "m", tensors), None)
    want = loading.load(family, plain(tmp_path / "plain", "llama", config, tensors), max_seq_len=32).twin(IDS)
    assert "the embedding as q4nx_q8_rows (0.0 MB of memory)" in stored.stored
    assert stored.config.tied and np.array_equal(stored.twin(IDS), want)
    assert stored.weights["embedding.table"].format.by_rows and stored.weights["embedding.table"].format.packed
    assert np.abs(Session(stored.model(), backend=HostBackend(strict=True)).logits(IDS) - want[-1]).max() < 5e-3


def test_chunks_are_widened_some_rows_at_a_time():
    """For `--dtype`: whole rows of chunks, in batches too, are the numbers of the whole."""
    tensor = Q4NX.quantize(np.random.default_rng(0).standard_normal((4096, 96)).astype(np.float32))
    assert np.array_equal(dense(tensor, np.float32), tensor.dequantize())
    assert np.array_equal(dense(tensor.reshape(1, 4096, 96), np.float32)[0], tensor.dequantize())


def test_gemmas_head_that_is_its_embedding_is_not_scaled_with_it(tmp_path):
    """Without a matrix of the head's own, the table is read without the scale."""
    family, config, tensors = model("gemma3")
    del tensors["lm_head.weight"]
    stored = load(family, folder(tmp_path / "m", tensors, config))
    want = loading.load(family, plain(tmp_path / "plain", "gemma3", config, tensors), max_seq_len=32).twin(IDS)
    assert stored.config.tied and np.abs(stored.twin(IDS) - want).max() < 1e-5


def test_a_family_of_another_author_needs_no_line_for_it(tmp_path):
    """If its tensors are named as Hugging Face's."""

    class Acme(Family):
        name = "acme"
        architectures = ("acme",)

    _, config, tensors = model("llama")
    config = config | {"model_type": "acme"}
    stored = load(Acme, folder(tmp_path / "m", tensors, config))
    want = load(Llama, folder(tmp_path / "llama", tensors))
    assert np.array_equal(stored.twin(IDS), want.twin(IDS))


def test_frequencies_beside_the_weights_are_none(tmp_path):
    """config.json says how they are scaled."""
    family, _, tensors = model("llama")
    tensors["rope_freqs.weight"] = np.ones(16, np.float32)
    load(family, folder(tmp_path / "m", tensors))


def test_scales_that_are_no_numbers_are_found(tmp_path):
    """Wherever in a chunk."""
    family, _, tensors = model("llama")
    broken = tensors["lm_head.weight"].copy()
    broken.data.reshape(-1, 5120)[2, 700:702] = (0x80, 0xFF)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight has scales that are NaN or infinite"):
        load(family, folder(tmp_path / "m", tensors | {"lm_head.weight": broken}))


def test_the_command_line_says_what_a_file_does_not(tmp_path, iron_run):
    """`--quantized-from`; without it the run ends with what is missing."""
    _, _, tensors = model("llama")
    path = folder(tmp_path / "m", tensors)
    line = ("llama", str(path), "--check-determinism", "2", "--prompt-len", "4", "--num-tokens", "2", "--backend", "reference")
    done = iron_run(*line, "--quantized-from", "Q4_1")
    assert done.returncode == 0, done.stderr
    done = iron_run(*line)
    assert done.returncode == 2 and "say --quantized-from Q4_1, or Q4_0. Evidence: 8 of 8 matrices have minima" in done.stderr


def test_python_says_it_too(tmp_path):
    """`iron_lm.load(path, quantized_from=...)`, which finds the family."""
    _, _, tensors = model("llama")
    path = folder(tmp_path / "m", tensors)
    found = iron_lm.load(path, quantized_from="Q4_1", activations="exact", max_seq_len=32, backend="reference")
    assert np.abs(found.logits(IDS) - load(Llama, path).twin(IDS)[-1]).max() < 5e-3


def test_other_kinds_say_it_themselves(tmp_path):
    """Nothing is said of a safetensors folder."""
    _, config, tensors = model("llama")
    with pytest.raises(UsageError, match="a safetensors checkpoint says by itself what is stored; quantized_from is for one that does not"):
        Checkpoint.open(plain(tmp_path / "plain", "llama", config, tensors), quantized_from="Q4_1")
