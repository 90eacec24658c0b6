"""Mixtures of experts in files that llama.cpp's quantiser made: the same numbers, and logits beside its own. Needs llama-cpp-python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_lm import loading
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.generation.session import Session
from iron_lm.mixture_config import MixtureConfig
from iron_lm.parts.rotary import RotaryConfig
from tests.families.conftest import FAMILIES, write_gguf

ll = pytest.importorskip("llama_cpp", reason="llama-cpp-python, which makes the files, is not installed")
gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")

VOCABULARY = 256
IDS = [int(i) for i in np.random.default_rng(0).integers(0, VOCABULARY, 20)]
#: llama.cpp's numbers of kinds of files.
KINDS = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18, "IQ4_NL": 25}
#: How far its logits may be from the twin's, of the largest one: it rounds activations to 8 bits in every product, K and V to 16.
NEAR = 0.08


def _small(name: str) -> MixtureConfig:
    """Rows that are whole K-quants."""
    return MixtureConfig(
        name="tiny", vocab_size=VOCABULARY, hidden_size=256, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64, intermediate_size=256,
        max_positions=128, rotary=RotaryConfig(64, 1e6), norm_epsilon=1e-6, tied=False, expert_size=256, num_experts=4, chosen=2,
        renormalise=name == "qwen3_moe", shared_size=256 if name == "qwen2_moe" else None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def backend() -> Iterator[None]:
    """llama.cpp, told to be quiet."""
    quiet = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(quiet, ctypes.c_void_p(0))
    ll.llama_backend_init()
    yield
    ll.llama_log_set(ll.llama_log_callback(0), ctypes.c_void_p(0))


@pytest.fixture(scope="module", params=["qwen3_moe", "qwen2_moe"])
def mixture(request: pytest.FixtureRequest, backend: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A family, and a float32 GGUF of one that is drawn. llama.cpp takes none that says nothing of a vocabulary."""
    folder, family = tmp_path_factory.mktemp("llama.cpp"), FAMILIES[request.param]
    c = _small(request.param)
    drawn = loading.random(family, c, 0, dtype="float32", max_seq_len=64).exact
    found = gguf.GGUFReader(str(write_gguf(folder / "without.gguf", request.param, c, drawn, "F32", {})))
    writer = gguf.GGUFWriter(str(folder / "model.gguf"), found.fields["general.architecture"].contents())
    for key, field in found.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(key, field.contents(), field.types[0])
    writer.add_string("tokenizer.ggml.model", "none")
    for one in found.tensors:
        writer.add_tensor(one.name, np.array(one.data.reshape(one.shape[::-1])))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return family, folder / "model.gguf"


def logits(path: Path) -> np.ndarray:
    """What llama.cpp makes of the ids, behind the last."""
    model = ll.llama_model_load_from_file(str(path).encode(), ll.llama_model_default_params())
    assert model
    params = ll.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 64, 1, 1
    context = ll.llama_init_from_model(model, params)
    try:
        assert ll.llama_decode(context, ll.llama_batch_get_one((ll.llama_token * len(IDS))(*IDS), len(IDS))) == 0
        return np.array(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, -1), (VOCABULARY,)))
    finally:
        ll.llama_free(context)
        ll.llama_model_free(model)


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
def test_what_its_quantiser_makes_is_read_to_the_exact_numbers(mixture: tuple[Any, Path], kind: str | None) -> None:
    """Those that the gguf package dequantises; logits of both ways of computing are near its own."""
    family, path = mixture
    if kind is not None:
        params = ll.llama_model_quantize_default_params()
        params.ftype, params.nthread = KINDS[kind], 1
        made = path.with_name(f"{kind}.gguf")
        assert ll.llama_model_quantize(str(path).encode(), str(made).encode(), ctypes.byref(params)) == 0
        path = made
    tensors = Checkpoint.open(path).tensors
    stored = gguf.GGUFReader(str(path)).tensors
    experts = {one.tensor_type.name for one in stored if one.name.endswith("_exps.weight")}
    assert (kind or "F32").removesuffix("_M") in experts
    for one in stored:
        shape, format, array = tensors[one.name]
        found = array.dequantize() if format.packed else np.asarray(array).astype(np.float32)
        assert np.array_equal(found, gguf.dequantize(one.data, one.tensor_type).reshape(shape)), (one.name, str(format))
    loaded, theirs = loading.load(family, path, max_seq_len=64), logits(path)
    want = loaded.twin(IDS)[-1]
    near = NEAR * np.abs(want).max()
    assert np.abs(Session(loaded.model(), backend="host").logits(IDS) - want).max() < near
    assert np.abs(theirs - want).max() < near and np.abs(theirs - want).max() > 0
