"""A model converted to Q4NX holds exactly the numbers that a formula gives, and runs as they do."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core import Q4_1, Q4NX, PackedArray, bfloat16
from iron_core.cli import main
from iron_core.errors import CheckpointError
from iron_gemma3.model import Gemma3, Gemma3Config
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.config_json import config_json
from iron_lm.checkpoints.sources import PlusOne, source_of
from iron_lm.conversion.conversion import Conversion
from iron_lm.decoder_config import DecoderConfig, every_nth_is_full
from iron_lm.generation.session import Session
from iron_lm.loading import Loaded
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.testing import tiny
from iron_q4nx import narrowing
from iron_qwen3.model import Qwen3
from tests.families.conftest import Family, write_gguf

IDS = [5, 71, 3, 3, 90, 12, 44, 8, 0, 95, 17, 60]
#: Rows of 96 and 320 numbers: within one chunk, and over two.
SIZES: dict[str, Any] = dict(
    vocab_size=96, hidden_size=96, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=32, intermediate_size=320, max_positions=64,
    norm_epsilon=1e-6, name="tiny",
)  # fmt: skip
MODELS: dict[str, tuple[Any, DecoderConfig]] = {
    "llama": (Llama, DecoderConfig(**SIZES, rotary=RotaryConfig(32), tied=False)),
    "qwen3": (Qwen3, DecoderConfig(**SIZES, rotary=RotaryConfig(32, 1e6))),
    "gemma3": (Gemma3, Gemma3Config(**SIZES, rotary=RotaryConfig(32, 1e6), local_rotary=RotaryConfig(32), activation="gelu_tanh",
        score_scale=32**-0.5, sliding=every_nth_is_full(3, 3), window=8)),
}  # fmt: skip


def ggml(kind: str, x: np.ndarray) -> np.ndarray:
    """float32: what a GGUF of this type has of x."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    quant = gguf.GGMLQuantizationType[kind]
    return gguf.quants.dequantize(gguf.quants.quantize(x, quant), quant)  # type: ignore[no-any-return]


def narrowed(kind: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Integers, scales and minima of a matrix whose file is of this type: a block's own of Q4_1 and Q4_0, in bfloat16."""
    rows, columns = x.shape
    if kind in ("Q4_1", "Q4_0"):
        gguf = pytest.importorskip("gguf")
        floats = 2 if kind == "Q4_1" else 1
        blocks = gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind]).reshape(rows, columns // 32, 2 * floats + 16)
        scales, *minima = np.moveaxis(np.ascontiguousarray(blocks[..., : 2 * floats]).view(np.float16), -1, 0).astype(np.float32)
        integers = np.concatenate([blocks[..., 2 * floats :] & 15, blocks[..., 2 * floats :] >> 4], -1)
        return {"values": integers.reshape(x.shape), "scales": scales, "minima": minima[0] if minima else -8 * scales}
    groups = ggml(kind, x).reshape(rows, columns // 32, 32)
    lowest, highest = groups.min(-1), groups.max(-1)
    scales = (highest - lowest) / np.float32(15)
    with np.errstate(divide="ignore"):
        steps = (groups - lowest[..., None]) * np.where(scales > 0, np.float32(1) / scales, np.float32(0))[..., None]
    return {"values": np.floor(steps + np.float32(0.5)).clip(0, 15).astype(np.uint8).reshape(x.shape), "scales": scales, "minima": lowest}


def numbers(kind: str, x: np.ndarray) -> np.ndarray:
    """float32: scale * integer + minimum of `narrowed`, the former two in bfloat16."""
    found = narrowed(kind, x)
    scales, minima = (found[role].astype(bfloat16).astype(np.float32)[..., None] for role in ("scales", "minima"))
    return (scales * found["values"].reshape(len(x), -1, 32) + minima).reshape(x.shape)  # type: ignore[no-any-return]


def is_chunked(path: str, x: np.ndarray) -> bool:
    return x.ndim == 2 and path != "embedding.table"


class Case:
    """A random model, its file of one type, and what that is converted to."""

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        self.name, self.kind = name, kind
        self.family, self.config = MODELS[name]
        weights: dict[str, np.ndarray] = tiny(self.family, self.config, seed=7).exact
        self.source = folder / f"{name}.gguf"
        if kind in ("F32", "BF16"):
            self.source = self._folder(folder / name, weights)
        else:
            write_gguf(self.source, {"llama": "mistral"}.get(name, name), self.config, weights, kind, {})
        if self.config.tied:
            weights = weights | {"head.matrix": weights["embedding.table"]}
        self.weights = weights
        self.out = folder / "out"
        self.converted = Conversion(self.source, self.out, "q4nx").run()

    def _folder(self, path: Path, weights: dict[str, np.ndarray]) -> Path:
        save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
        path.mkdir()
        stored = {}
        for where, x in weights.items():
            source = source_of(self.family.names("safetensors", self.config), where)
            stored[source.names[0]] = self.stored(x - np.float32(isinstance(source, PlusOne)))
        save.save_file(stored, path / "model.safetensors")
        (path / "config.json").write_text(json.dumps(config_json(self.family, self.config)))
        return path

    def expected(self, path: str) -> np.ndarray:
        """float32: the numbers of the weight at a path."""
        x = self.weights[path]
        if is_chunked(path, x):
            return numbers(self.kind, x)
        dense = self.kind in ("F32", "BF16")
        found = (self.stored(x) if dense else x if x.ndim == 1 else ggml(self.kind, x)).astype(np.float32)
        if self.name == "gemma3" and path == "embedding.table":
            found = found * np.float32(np.sqrt(96))
        elif self.name == "gemma3" and dense and "norm" in path:  # which is stored less one
            found = self.stored(x - np.float32(1)).astype(np.float32) + np.float32(1)
        return found.astype(bfloat16).astype(np.float32)  # type: ignore[no-any-return]

    def stored(self, x: np.ndarray) -> np.ndarray:
        return x.astype(bfloat16 if self.kind == "BF16" else np.float32)

    def loaded(self) -> Loaded:
        return loading.load(self.family, self.out)

    def by_formula(self, packed: bool) -> Loaded:
        """The model with weights that no file was read for, in the formats that a Q4NX file has them in or as float32."""

        def of(path: str, x: np.ndarray) -> Any:
            if not packed:
                return self.expected(path)
            return Q4NX.assembled(x.shape, **narrowed(self.kind, x)) if is_chunked(path, x) else self.expected(path).astype(bfloat16)

        weights = {path: of(path, x) for path, x in self.weights.items()}
        return attrs.evolve(self.loaded(), weights=weights, exact=weights)


CASES = [("llama", "Q4_1"), ("llama", "Q4_0"), ("llama", "F32"), ("qwen3", "Q8_0"), ("qwen3", "BF16"), ("qwen3", "Q4_1")]
CASES += [("gemma3", "Q4_0"), ("gemma3", "BF16"), ("gemma3", "Q4_1")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(*request.param, tmp_path_factory.mktemp("case"))


def bits(array: Any) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint32)


def test_what_is_read_is_what_the_formula_gives(case: Case) -> None:
    """Every tensor, bit for bit: matrices as chunks, the head's too where it is tied, everything else in bfloat16."""
    exact = case.loaded().exact
    assert set(exact) == set(case.weights) and case.converted.tensors == len(exact)
    for path, x in case.weights.items():
        array = exact[path]
        assert isinstance(array, PackedArray) == is_chunked(path, x), path
        got = array.dequantize() if isinstance(array, PackedArray) else array.astype(np.float32)
        np.testing.assert_array_equal(bits(got), bits(case.expected(path)), err_msg=path)


def test_it_runs_as_the_formulas_numbers_do(case: Case) -> None:
    """The logits of a run equal, bit for bit, those of weights made by the formula; so do the twin's, of float32 weights."""
    loaded, made = case.loaded(), case.by_formula(packed=True)
    for backend in ("reference", "host"):
        got, want = (Session(one.model(), backend=backend).logits(IDS).copy() for one in (loaded, made))
        assert np.isfinite(got).all() and np.ptp(got) > 0.1
        np.testing.assert_array_equal(bits(got), bits(want), err_msg=backend)
    np.testing.assert_array_equal(bits(loaded.twin(IDS)), bits(case.by_formula(packed=False).twin(IDS)))


def test_the_file_is_as_the_public_converter_writes_it(case: Case) -> None:
    """Names of Hugging Face's layout, chunks in one row each, bfloat16 or bytes; tensors one behind the other, and that 4 bits come
    from Q4_1 is said."""
    raw = (case.out / "model.q4nx").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert header.pop("__metadata__") == {"quantized_from": "Q4_1"} and (8 + length) % 64 == 0
    end = 0
    for name, entry in header.items():
        assert entry["data_offsets"][0] == end
        end = entry["data_offsets"][1]
        matrix = name.endswith(("proj.weight", "lm_head.weight"))
        assert entry["dtype"] == ("I8" if matrix else "BF16") and (not matrix or entry["shape"][1:] == [5120]), name
    assert len(raw) == 8 + length + end and header["model.layers.2.mlp.down_proj.weight"]["shape"] == [6, 5120]
    assert header["lm_head.weight"]["shape"] == [3, 5120] and header["model.embed_tokens.weight"]["shape"] == [96, 96]


def test_the_config_says_the_same(case: Case) -> None:
    """But that the head has a matrix of its own, and in a folder the file itself is taken over."""
    scaled = {"scaled_table": True} if case.name == "gemma3" else {}
    config, found = attrs.evolve(case.config, tied=False, **scaled), case.loaded().config
    narrow = {name: getattr(config, name) for name in ("norm_epsilon", "score_scale")}  # a GGUF has them in float32
    assert [getattr(found, name) for name in narrow] == [pytest.approx(number) for number in narrow.values()]
    assert attrs.evolve(found, name=config.name, **narrow) == config
    if case.source.is_dir():
        assert (case.out / "config.json").read_bytes() == (case.source / "config.json").read_bytes()


def test_pieces_of_any_size_give_the_same(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """32 rows at a time, or all."""
    monkeypatch.setattr(narrowing, "_PIECE", 1)
    Conversion(case.source, tmp_path / "out", "q4nx").run()
    assert (tmp_path / "out" / "model.q4nx").read_bytes() == (case.out / "model.q4nx").read_bytes()


def test_a_converted_model_is_converted_to_itself(case: Case, tmp_path: Path) -> None:
    """Q4NX is read and written without a loss."""
    Conversion(case.out, tmp_path / "out", "q4nx").run()
    for name in ("model.q4nx", "config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (case.out / name).read_bytes()


def refused(capsys: pytest.CaptureFixture[str], source: Path, out: Path) -> str:
    """What `iron checkpoints convert` says, in one line, where it writes nothing."""
    assert main(["checkpoints", "convert", str(source), str(out), "--format", "q4nx"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and re.fullmatch(r"error: [^\n]*\n", told.err), told
    assert not out.exists() and not out.with_name("out.partial").exists()
    return told.err


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"vocab_size": 100}, r"lm_head.weight is \[100, 96\]; q4nx: .*32"),
        ({"intermediate_size": 48}, r"down_proj.weight is \[96, 48\]; q4nx: .*32|(gate|up)_proj.weight is \[48, 96\]; q4nx: .*32"),
    ],
    ids=["rows", "columns"],
)
def test_matrices_that_are_no_whole_chunks_are_refused(
    changes: dict[str, int], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tensor, its shape and the rule, before anything is written."""
    config = attrs.evolve(MODELS["llama"][1], **changes)
    source = tmp_path / "odd.gguf"
    write_gguf(source, "mistral", config, tiny(Llama, config).exact, "F32", {})
    assert re.search(says, refused(capsys, source, tmp_path / "out"))


@pytest.mark.parametrize("number", [np.nan, np.inf, 3.4e38])
@pytest.mark.parametrize(
    ("path", "name"), [("layers.0.mixer.v", "model.layers.0.self_attn.v_proj"), ("embedding.table", "model.embed_tokens")]
)
def test_numbers_that_are_none_are_refused(path: str, name: str, number: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tensor that has one, or numbers so far apart that no scale in bfloat16 reaches from one to the other."""
    config = MODELS["llama"][1]
    weights = {path: x.copy() for path, x in tiny(Llama, config).exact.items()}
    weights[path][3, 4:6] = number, -number
    source = tmp_path / "odd.gguf"
    write_gguf(source, "mistral", config, weights, "F32", {})
    assert main(["checkpoints", "convert", str(source), str(tmp_path / "out"), "--format", "q4nx"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {source}: {name}.weight has numbers that are NaN, infinite or too large for bfloat16.")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_model_that_the_layout_has_no_names_for_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPT-2's queries, keys and values are rows of one tensor, and its matrices stand the other way round."""
    assert "FastFlowLM's layout" in refused(capsys, Family("gpt2", tmp_path).write(), tmp_path / "out")


def test_an_architecture_that_nothing_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By name, with those there are."""
    save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
    save.save_file({"x": np.zeros((32, 32), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    assert re.search("architecture 'mamba', which no model here runs", refused(capsys, tmp_path, tmp_path / "out"))


class Stopped(Conversion):
    """One that Ctrl-C ends when so many tensors are written."""

    def run_to(self, done: int) -> None:
        self._stop = done
        self.run()

    def _tell(self, nbytes: int) -> None:
        if self._unfinished.done == self._stop:
            raise KeyboardInterrupt


def test_what_is_not_whole_is_not_taken_for_it(case: Case, tmp_path: Path) -> None:
    """OUT.partial is no checkpoint, at whatever tensor it ends; and it becomes one."""

    for done in (1, case.converted.tensors):
        with pytest.raises(KeyboardInterrupt):
            Stopped(case.source, tmp_path / "out", "q4nx").run_to(done)
        with pytest.raises(CheckpointError, match=r"no config.json beside model.q4nx"):
            Checkpoint.open(tmp_path / "out.partial")
    assert Conversion(case.source, tmp_path / "out", "q4nx").run().kept == case.converted.tensors
    assert (tmp_path / "out" / "model.q4nx").read_bytes() == (case.out / "model.q4nx").read_bytes()


@pytest.mark.parametrize("format", [None, Q4_1], ids=str)
def test_memory_is_bounded_by_pieces(monkeypatch: pytest.MonkeyPatch, format: Any) -> None:
    """Of a matrix no more is made at once than a piece for each thread."""
    monkeypatch.setattr(narrowing, "_PIECE", 1 << 12)
    monkeypatch.setattr(narrowing.os, "cpu_count", lambda: 2)
    matrix: Any = np.random.default_rng(0).standard_normal((2048, 512)).astype(np.float32)
    matrix = matrix if format is None else format.quantize(matrix)
    tracemalloc.start()
    nbytes = sum(len(part.reshape(-1)) for part in narrowing.made(matrix, None, narrowing.chunks))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert nbytes == Q4NX.nbytes(matrix.shape) and peak < 2 * matrix.size
