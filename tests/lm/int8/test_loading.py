"""`quantize="int8"` at load: what is made, that it is made once and kept, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core import Q4_0, PackedArray
from iron_core.cache.store import CacheWarning
from iron_core.cli import main
from iron_core.errors import CacheError, CheckpointError, UsageError
from iron_core.plugins.registry import registry
from iron_llama.model import Llama
from iron_lm import arithmetic, loading, quantizing
from iron_lm.checkpoints import kept
from iron_lm.checkpoints.identity import origin
from iron_lm.encoding import EncoderModel
from iron_lm.generation.session import Session
from iron_lm.int8 import INT8
from iron_lm.quantizing import quantized
from tests.lm.arrays.test_families import FAMILIES
from tests.lm.arrays.test_families import small as small_of
from tests.lm.int8.qwen3 import small

TINY = Path(__file__).parents[2] / "data" / "tiny_llama"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the tiny Llama's folder, and an empty cache."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def load(folder: Path, **options: Any) -> loading.Loaded:
    return loading.load(Llama, str(folder), **dict(quantize="int8", max_seq_len=64) | options)


def entries(folder: Path) -> list[Path]:
    return sorted((folder.parent / "cache" / "iron" / "weights").glob("[0-9a-f]*"))


def refuse_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("it was made again")

    monkeypatch.setattr(quantizing, "quantized", refused)


def test_projections_are_integers_and_the_rest_is_as_it_runs(folder: Path) -> None:
    """Of a file of float32 too: activations in float32, caches in float16, the head in blocks of 8 bits where it is read whole."""
    loaded = load(folder)
    exact = loaded.exact
    joined = loaded.weights["layers.1.mixer.q+k+v"]
    expected = quantized("", [exact[f"layers.1.mixer.{name}"] for name in "qkv"])
    assert joined.format == INT8 and np.array_equal(joined.data, expected.data)
    assert loaded.weights["layers.0.ffn.down"].format == INT8 and "layers.0.mixer.q" not in loaded.weights
    assert loaded.weights["norm.weight"].dtype == loaded.weights["embedding.table"].dtype == np.float32
    assert str(loaded.weights["head.matrix"].format) == "q8_0"
    assert (loaded.run.dtype, loaded.run.cache_dtype, loaded.run.activation_scale) == ("float32", "float16", "dynamic")
    assert loaded.stored.startswith("int8 from float32 (") and loaded.stored.endswith(", head q8_0")
    narrow = load(folder, dtype="bfloat16")
    assert {str(array.dtype) for array in narrow.weights.values() if not isinstance(array, PackedArray)} == {"bfloat16"}


def test_they_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on they lie in a mapped file of the cache, which no weight is copied from."""
    first = load(folder)
    refuse_to_make(monkeypatch)
    again = load(folder, activation_scale="fixed", max_seq_len=32)
    (entry,) = entries(folder)
    for path, array in again.weights.items():
        if isinstance(array, PackedArray):
            assert np.array_equal(array.data, first.weights[path].data)
            assert origin(array.data).path == str((entry / "weights.bin").resolve())
    assert json.loads((entry / "entry.json").read_text())["kind"] == "int8 weights"
    assert np.isfinite(Session(again.model(), backend="reference").logits([1, 2, 3])).all()


@pytest.mark.parametrize("harm", [
    lambda file: file.write_bytes(file.read_bytes()[:-64]), lambda file: file.write_bytes(bytes(file.stat().st_size)), Path.unlink,
], ids=["cut short", "overwritten", "gone"])  # fmt: skip
def test_what_is_damaged_is_made_again(folder: Path, harm: Any) -> None:
    """With a warning; the weights are right."""
    first = load(folder)
    (entry,) = entries(folder)
    harm(entry / "weights.bin")
    with pytest.warns(CacheWarning, match="building it again"):
        again = load(folder)
    for path, array in first.weights.items():
        if isinstance(array, PackedArray) and path != "head.matrix":
            assert np.array_equal(again.weights[path].data, quantized("", _members(again, path)).data)


def _members(loaded: loading.Loaded, path: str) -> list[Any]:
    where, _, names = path.rpartition(".")
    return [loaded.exact[f"{where}.{name}"] for name in names.split("+")]


def test_other_numbers_are_made_anew(folder: Path) -> None:
    """A file that was changed, or one of the same name and size in its place."""
    from safetensors.numpy import load_file, save_file

    load(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.0.mlp.down_proj.weight"
    file.unlink()
    save_file(tensors | {name: -tensors[name]}, file)
    loaded = load(folder)
    assert len(entries(folder)) == 2
    assert np.array_equal(loaded.weights["layers.0.ffn.down"].data, quantized("", [-tensors[name]]).data)


def test_weights_of_another_config_are_made_anew(folder: Path) -> None:
    """Which may say that rows are in another order, though the weights' file is the same."""
    load(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": {"rope_type": "default", "rope_theta": 1234.0}}))
    load(folder)
    assert len(entries(folder)) == 2


def test_a_cache_that_cannot_be_used_is_done_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning says so; the weights are in memory."""

    def full(*_: Any, **__: Any) -> Any:
        raise CacheError("the disk is full.")

    monkeypatch.setattr(kept.Cache, "entry", full)
    with pytest.warns(CacheWarning, match="the disk is full"):
        down = load(folder).weights["layers.0.ffn.down"]
    assert down.format == INT8 and origin(down.data) is None


def test_numbers_that_are_none_are_refused(folder: Path) -> None:
    """By the file and the weight's path, and nothing is kept."""
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.k_proj.weight"][2, 3] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.1\.mixer\.q\+k\+v holds numbers that are NaN or infinite"):
        load(folder)
    assert not entries(folder)


@pytest.mark.parametrize(("asked", "says"), [
    (dict(quantize="int4"), "quantize=int4; legal: int8."),
    (dict(activation_scale="per-row"), "activation_scale=per-row; legal: fixed, dynamic."),
    (dict(quantize=None, activation_scale="fixed"), "activation_scale=fixed .* legal with quantize=int8"),
    (dict(activations="exact"), "activations=exact with quantize=int8, .* leave one of them out"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(asked: dict[str, Any], says: str) -> None:
    """From Python, before the file is opened."""
    with pytest.raises(UsageError, match=says):
        iron_lm.load("llama", "/nowhere", **dict(quantize="int8") | asked)


@pytest.mark.parametrize(("argv", "says"), [
    (["--quantize", "nonsense"], "'--quantize': 'nonsense' is not"),
    (["--activation-scale", "fixed"], "activation_scale=fixed"),
    (["--quantize", "int8", "--activations", "exact"], "activations=exact with quantize=int8"),
    (["--quantize", "int8", "--activation-scale", "dynamic", "--backend", "sim", "--dev", "npu1"], "activation_scale=dynamic on npu1"),
    (["--quantize", "int8", "--activations", "exact", "--random-weights", "1"], "activations=exact with quantize=int8"),
])  # fmt: skip
def test_a_mistaken_line_is_one_line_and_status_2(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As every other mistake."""
    assert main(["run", "llama", *([] if "--random-weights" in argv else [str(TINY)]), *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and says in err, err


def test_the_header_and_the_json_say_how_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """And which figures 4 bits have stand beside those of an accuracy check."""
    argv = ["run", "llama", str(TINY), "--quantize", "int8", "--max-seq-len", "64", "--backend", "host"]
    main([*argv, "--check-accuracy"])
    out, err = capsys.readouterr()
    assert "int8 from float32" in err and "int8 products, dynamic scale" in err
    assert "mean KL" in out and "(gate <= 0.18)" in out and "the same in q4_0: logit rms" in out
    main([*argv, "--check-determinism", "2", "--json", "--activation-scale", "fixed"])
    facts = json.loads(capsys.readouterr().out)
    assert (facts["quantize"], facts["activation_scale"], facts["passed"]) == ("int8", "fixed", True)


def test_4_bits_are_as_stored_or_rounded(tiny_gguf: Any) -> None:
    """What a quantised model is compared with has blocks as the file has them, else Q4_0."""
    pytest.importorskip("gguf")
    stored = loading.load(Llama, str(tiny_gguf("Q4_1")), quantize="int8", max_seq_len=64)
    assert stored.in_blocks().stored == "q4_1" and stored.in_blocks().run.quantize is None
    drawn = small().in_blocks()
    assert drawn.weights["layers.0.mixer.q"].format == Q4_0
    np.testing.assert_array_equal(drawn.weights["norm.weight"], drawn.exact["norm.weight"])


def test_a_trace_is_of_these_scales(folder: Path) -> None:
    """Products hold them, so another checkpoint's trace is another, and a fixed scale's too."""
    keys = {load(folder).cache_key, load(folder, activation_scale="fixed").cache_key, load(folder, quantize=None).cache_key}
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    save_file({name: 2 * array for name, array in tensors.items()}, folder / "model.safetensors")
    assert len({*keys, load(folder).cache_key}) == 4 and None not in keys


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_runs_quantized(name: str) -> None:
    """Its projections are integers, biases and all, without a line of its own; logits, or an encoder's vector, are within a fifth of
    the exact ones."""
    family = registry().load("models", name)
    loaded = loading.random(family, small_of(family.full_size()), 1, quantize="int8", max_seq_len=64)
    matrices = {path.rpartition(".")[2] for path, weight in loaded.weights.items() if len(weight.shape) == 2}  # experts stay as they are
    assert not matrices & {"q", "k", "v", "gate", "up"} - _whole(loaded)
    ids = [int(i) for i in np.random.default_rng(4).integers(0, 512, 20)]
    encodes = loaded.config.encodes
    got = EncoderModel(loaded, backend="reference").vector(ids) if encodes else Session(loaded.model(), backend="reference").logits(ids)
    want = loaded.twin(ids)[-1]
    assert 0 < np.linalg.norm(got - want) <= 0.2 * np.linalg.norm(want)


def _whole(loaded: loading.Loaded) -> set[str]:
    """Projections of one matrix, which have its name."""
    return {path.rpartition(".")[2] for path, array in loaded.weights.items() if getattr(array, "format", None) == INT8}


def test_the_usual_scale_is_one_that_the_device_takes(folder: Path) -> None:
    """Each row's own on the CPU, a fixed one on arrays, unless another is asked for."""
    options = dict(quantize="int8", max_seq_len=64, backend="reference")
    assert iron_lm.load("llama", folder, **options).loaded.run.activation_scale == "dynamic"
    assert iron_lm.load("llama", folder, **options, activation_scale="fixed").loaded.run.activation_scale == "fixed"
    assert [arithmetic.scale_on("sim", dev) for dev in ("npu1", "npu2")] == ["fixed", "fixed"]
    with pytest.raises(UsageError, match=r"activation_scale=dynamic on npu2, whose arrays multiply sums by one number\. Legal: fixed"):
        iron_lm.load("llama", folder, **options | dict(backend="sim", dev="npu2"), activation_scale="dynamic")
