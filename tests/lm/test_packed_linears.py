"""Models of GPTQ's and AWQ's folders: they run as they are stored, and are those of the numbers that they hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from iron_core.cli import main
from iron_core.declare.formats import format_of
from iron_host.backend import HostBackend
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.generation.session import Session
from iron_qwen2.model import Qwen2
from iron_qwen3_5.model import Qwen35
from tests.lm.checkpoints.packers import awq, by_activations, config, drawn, folder, gptq, numbers
from tests.q4nx.folders import CONFIG, matrices

DATA = Path(__file__).parents[1] / "data"
IDS = np.random.default_rng(0).integers(0, 96, 24).tolist()
PACKED = {
    "gptq v1": (lambda *parts: gptq(*parts, "v1"), config("gptq", 32, checkpoint_format="gptq"), False),
    "gptq v2": (lambda *parts: gptq(*parts, "v2"), config("gptq", 32, checkpoint_format="gptq_v2"), False),
    "gptq symmetric": (gptq, config("gptq", 32, sym=True), True),
    "awq": (awq, config("awq", 32), False),
}


def model(path, name, family="llama", shards=1):
    """A folder whose layers' matrices are packed, and one of the numbers that they stand for."""
    pack, packed, symmetric = PACKED[name]
    settings = CONFIG | {"model_type": family}
    stored, plain = {}, {}
    for at, (key, values) in enumerate(matrices(settings).items()):
        if key.endswith("_proj.weight"):
            parts = drawn(*values.shape, 32, symmetric=symmetric, seed=at)
            plain[key] = numbers(*parts)
            stored |= {f"{key.removesuffix('weight')}{part}": array for part, array in pack(*parts).items()}
        else:
            plain[key] = stored[key] = values.astype(np.float16)
        if family == "qwen2" and key.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            bias = np.random.default_rng(at).standard_normal(len(values)).astype(np.float16)
            plain[key.replace("weight", "bias")] = stored[key.replace("weight", "bias")] = bias
    settings = settings | {"tie_word_embeddings": False}
    plain = {key: values.astype(np.float32) for key, values in plain.items()}
    return folder(path / "m", stored, packed, settings, shards), folder(path / "plain", plain, None, settings)


@pytest.mark.parametrize("family", [Llama, Qwen2], ids=["llama", "qwen2"])
@pytest.mark.parametrize("name", PACKED)
def test_a_model_is_that_of_the_numbers_it_holds(tmp_path, name, family):
    """Its twin's logits are equal to those of a float32 file, and the kernels' near them: exact, and with rounded activations."""
    path, plain = model(tmp_path, name, family.name, shards=2)
    stored = loading.load(family, path, activations="exact", max_seq_len=32)
    want = loading.load(family, plain, max_seq_len=32).twin(IDS)
    format = "int4_group32" if name == "gptq symmetric" else "uint4_group32"
    assert stored.stored.startswith(f"{format} as in the file, put in rows (0.")
    assert str(format_of(stored.weights["layers.0.mixer.q"])) == format
    assert np.array_equal(stored.twin(IDS), want)
    assert np.abs(Session(stored.model(), backend=HostBackend(strict=True)).logits(IDS) - want[-1]).max() < 5e-3
    rounded = loading.load(family, path, max_seq_len=32)
    assert rounded.run.activations == "int8_block"
    assert np.abs(Session(rounded.model(), backend=HostBackend(strict=True)).logits(IDS) - want[-1]).max() < 0.2


def test_a_model_in_activation_order_runs_as_its_numbers(tmp_path, monkeypatch):
    """As float32, made once and then mapped; how much memory it takes is said."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    stored, plain = {}, {}
    for at, (key, values) in enumerate(matrices(CONFIG).items()):
        stored[key] = plain[key] = values.astype(np.float32)
        if key.endswith("_proj.weight"):
            sorted_, scales, zeros = drawn(*values.shape, 32, seed=at)
            ints, g_idx = by_activations(sorted_, 32, at)
            plain[key] = numbers(ints, scales, zeros, g_idx)
            del stored[key]
            made = gptq(ints, scales, zeros, g_idx=g_idx)
            stored |= {f"{key.removesuffix('weight')}{part}": array for part, array in made.items()}
    settings = CONFIG | {"model_type": "llama", "tie_word_embeddings": False}
    path = folder(tmp_path / "m", stored, config("gptq", 32, desc_act=True, checkpoint_format="gptq"), settings)
    want = loading.load(Llama, folder(tmp_path / "plain", plain, None, settings), max_seq_len=32).twin(IDS)
    for _ in range(2):
        loaded = loading.load(Llama, path, max_seq_len=32)
        q = loaded.weights["layers.0.mixer.q"]
        assert q.dtype == np.float32 and not q.flags.owndata and "matrices in activation order, as float32" in loaded.recognised
        assert loaded.stored.startswith("float32 as in the file; matrices in activation order widened to float32 (0.")
        assert len(list((tmp_path / "cache" / "iron" / "weights").glob("[0-9a-f]*"))) == 1
    assert np.array_equal(loaded.twin(IDS), want)
    assert np.abs(Session(loaded.model(), backend=HostBackend(strict=True)).logits(IDS) - want[-1]).max() < 1e-4


def test_rows_are_made_once_and_then_mapped(tmp_path, monkeypatch):
    """Under the identity of the files, and of how they are read: what is said of zero points makes others."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    path, _ = model(tmp_path, "gptq v1")
    kept = tmp_path / "cache" / "iron" / "weights"
    for said, entries in (("v1", 1), ("v1", 1), ("v2", 2)):
        loaded = loading.load(Llama, Checkpoint.open(path, gptq_zeros=said), max_seq_len=32)
        q = loaded.weights["layers.0.mixer.q"]
        want = Checkpoint.open(path, gptq_zeros=said).tensors["model.layers.0.self_attn.q_proj.weight"][2].packed()
        assert np.array_equal(q.data, want.data) and not q.data.flags.owndata
        assert len(list(kept.glob("[0-9a-f]*"))) == entries


def test_integers_of_one_scale_are_made_of_packed_weights_too(tmp_path):
    """quantize=int8, and dtype=float32."""
    path, plain = model(tmp_path, "awq")
    for options in (dict(quantize="int8"), dict(dtype="float32")):
        found, want = (loading.load(Llama, each, max_seq_len=32, **options) for each in (path, plain))
        down = "layers.0.ffn.down"
        each = [loaded.weights[down] for loaded in (found, want)]
        assert all(np.array_equal(getattr(a, "data", a), getattr(b, "data", b)) for a, b in [each])


def test_the_command_line_says_what_is_read(tmp_path, capsys):
    """`iron checkpoints show`, which reads no weights, and --gptq-zeros."""
    path, _ = model(tmp_path, "gptq v1")
    assert main(["checkpoints", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "GPTQ, 4 bits, groups of 32, zero points stored less one (v1: as checkpoint_format says)" in shown
    assert "uint4_group32" in shown
    assert main(["checkpoints", "show", str(path), "--gptq-zeros", "v2", "--json"]) == 0
    assert "zero points stored as they are (v2: as asked for)" in capsys.readouterr().out
    assert main(["checkpoints", "show", str(path), "--gptq-zeros", "7"]) == 2
    assert "gptq_zeros='7'; legal: v1, v2." in capsys.readouterr().err


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one tensor"])
def test_experts_that_are_packed(tmp_path, together):
    """Each by itself, which are put one behind another, or all of a layer in one tensor; dense ones beside them."""
    stored = np.load(DATA / "tiny_qwen3_5_moe.npz")
    entries = json.loads(str(stored["config"]))
    tensors, plain = {}, {}
    for at, key in enumerate(key for key in stored if key.startswith("w/")):
        name, values = key[2:], stored[key].astype(np.float32)
        expert = name.endswith("experts.down_proj")
        down = expert or name.endswith(("_expert.down_proj.weight", "out_proj.weight"))
        count = (len(values) if expert else 1) if down else 0
        made = [drawn(*values.shape[-2:], 32, seed=100 * at + n) for n in range(count)]
        plain[name] = values if not down else np.stack([numbers(*one) for one in made]).reshape(values.shape)
        if not down:
            tensors[name] = values
        elif expert and together:
            tensors |= {f"{name}.{part}": np.stack([gptq(*one)[part] for one in made]) for part in gptq(*made[0])}
        else:
            ats = [name.replace("down_proj", f"{n}.down_proj") for n in range(len(made))] if expert else [name.removesuffix(".weight")]
            tensors |= {f"{where}.{part}": array for where, one in zip(ats, made, strict=True) for part, array in gptq(*one).items()}
    path = folder(tmp_path / "m", tensors, config("gptq", 32, checkpoint_format="gptq"), entries)
    found = loading.load(Qwen35, path, activations="exact", max_seq_len=32)
    ids = [int(i) for i in stored["ids"]][:16]
    want = loading.load(Qwen35, folder(tmp_path / "plain", plain, None, entries), max_seq_len=32).twin(ids)
    assert str(format_of(found.weights["layers.0.ffn.down"])) == "uint4_group32"
    assert np.array_equal(found.twin(ids), want)
    assert np.abs(Session(found.model(), backend=HostBackend()).logits(ids) - want[-1]).max() < 1e-3
