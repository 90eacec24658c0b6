"""GGUF's quantisations: every one read gives the gguf package's numbers bit for bit, alone, mixed, and in a model that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.declare.formats import (
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_0,
    PackedArray,
    SuperBlock,
    bfloat16,
)
from iron_core.errors import CheckpointError, UsageError
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.checkpoints import widening
from iron_lm.checkpoints.gguf import FORMATS, GGUFFile
from iron_lm.checkpoints.widening import runnable, runs_as
from iron_lm.generation.session import Session
from iron_lm.parts.part import widen

gguf = pytest.importorskip("gguf", reason="the gguf package is the oracle of its quantisations")

MADE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")  # kinds the package can make
SUPER = (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS)
#: About how large the integers of each are, times their quantised scales.
SIZES = {"q2_k": 2 * 8, "q3_k": 3 * 16, "q4_k": 8 * 32, "q5_k": 16 * 32, "q6_k": 16 * 60, "iq4_nl": 60, "iq4_xs": 60 * 16}
KINDS = (*MADE, *(f.name.upper() for f in SUPER))
WIDTH, HIDDEN, HEADS, GROUPS, LAYERS, VOCAB = 256, 512, 4, 2, 2, 96


def packed(kind: str, shape: tuple[int, ...], rng: np.random.Generator, spread: float = 0.02) -> np.ndarray:
    """Bytes (or numbers) of a tensor of a ggml type: rounded from normal numbers, or for K-quants blocks of random bits.

    Random bits are what no quantiser promises to leave out: every integer, scale and minimum. The float16 scales are drawn so
    that numbers stay of the size of `spread`.
    """
    quant = gguf.GGMLQuantizationType[kind]
    if kind in MADE:
        return np.asarray(gguf.quantize((rng.standard_normal(shape) * spread).astype(np.float32), quant))
    format = next(f for f in SUPER if f.name.upper() == kind)
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // format.columns, format.block_bytes), np.uint8)
    size = spread / SIZES[format.name]
    for at in format.halves:
        sign = 1 if len(format.halves) == 2 else rng.choice([-1, 1], blocks.shape[:-1])
        half = (sign * size * rng.uniform(0.5, 2, blocks.shape[:-1])).astype(np.float16)
        blocks[..., at : at + 2] = half[..., None].view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def numbers(array: Any) -> np.ndarray:
    return array.dequantize() if isinstance(array, PackedArray) else np.asarray(array).astype(np.float32)


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint32)


def write(path: Path, tensors: dict[str, tuple[str, np.ndarray]], **metadata: Any) -> Path:
    """A GGUF of llama architecture with these tensors: name -> (ggml type, bytes)."""
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, value in metadata.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"llama.{key.replace('__', '.')}", value)
    for name, (kind, data) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a tensor of every kind, of one, two and three dimensions."""
    rng = np.random.default_rng(0)
    tensors = {f"{kind}.{len(s)}": (kind, packed(kind, s, rng)) for kind in KINDS for s in ((512,), (6, 256), (3, 5, 512))}
    return write(tmp_path_factory.mktemp("quants") / "every.gguf", tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_equal_the_gguf_packages(every: Path, kind: str) -> None:
    """As stored, as the operators get them, and widened to float32: the package's own dequantisation, bit for bit."""
    theirs = {t.name: t for t in gguf.GGUFReader(str(every)).tensors}
    for name, (shape, format, array) in GGUFFile.open(every).tensors.items():
        if not name.startswith(f"{kind}."):
            continue
        want = gguf.dequantize(theirs[name].data, theirs[name].tensor_type).reshape(shape).astype(np.float32)
        runs = runnable(array)
        assert shape == array.shape == runs.shape
        for got in (numbers(array), numbers(runs), widening.dense(array, np.dtype(np.float32))):
            np.testing.assert_array_equal(bits(got), bits(want))
        assert widening.stored_format(runs) == runs_as(format)


@pytest.mark.parametrize("format", (*SUPER, MXFP4), ids=str)
def test_any_bits_are_a_superblock(format: SuperBlock) -> None:
    """Scales of every size, zeros, denormals and infinities included: whatever 10 000 random blocks hold, the numbers agree."""
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (10_000, format.block_bytes), np.uint8)
    with np.errstate(all="ignore"):
        want = gguf.dequantize(blocks, gguf.GGMLQuantizationType[format.name.upper()])
    got = format.dequantize(blocks, (len(blocks), format.columns))
    known = np.isfinite(want)
    assert known.mean() > 0.9 and np.array_equal(np.isfinite(got), known)
    np.testing.assert_array_equal(bits(got)[known], bits(want)[known])


def test_what_runs_as_what() -> None:
    """Every type stays as it is."""
    assert all(runs_as(format) == format for format in FORMATS.values())


def test_widening_goes_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However rows are cut into pieces, the result is the same, to every dtype."""
    rng = np.random.default_rng(2)
    array = PackedArray(packed("Q5_K", (37, 512), rng), (37, 512), Q5_K)  # type: ignore[arg-type]
    whole = {d: widening.dense(array, np.dtype(d)) for d in (np.float32, np.float16, bfloat16)}
    five = PackedArray(packed("Q5_0", (37, 512), rng), (37, 512), FORMATS[6])  # type: ignore[arg-type]
    eight = widening.repacked(five, Q8_0).data
    for piece in (1, 512, 5000):
        monkeypatch.setattr(widening, "_PIECE", piece)
        for dtype, want in whole.items():
            np.testing.assert_array_equal(widening.dense(array, np.dtype(dtype)).view(np.uint8), want.view(np.uint8))
        np.testing.assert_array_equal(widening.repacked(five, Q8_0).data, eight)


def test_widening_takes_the_result_and_little_more() -> None:
    """Temporaries of a tensor of 64 MB stay under a quarter of it."""
    import tracemalloc

    array = PackedArray(np.zeros((16384, 4 * 144), np.uint8), (16384, 1024), Q4_K)  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        wide = widening.dense(array, np.dtype(np.float32))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert wide.nbytes == 64 << 20 and peak < 1.25 * wide.nbytes


# -- models ---------------------------------------------------------------------------------------


def model(path: Path, kinds: dict[str, str], seed: int = 3) -> Path:
    """A random Llama of width 256. kinds: ggml type by the end of a tensor's name; "" for the other matrices."""
    rng = np.random.default_rng(seed)
    head = WIDTH // HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (VOCAB, WIDTH), "output_norm": (WIDTH,), "output": (VOCAB, WIDTH)}
    for i in range(LAYERS):
        here = {
            "attn_norm": (WIDTH,), "attn_q": (HEADS * head, WIDTH), "attn_k": (GROUPS * head, WIDTH), "attn_v": (GROUPS * head, WIDTH),
            "attn_output": (WIDTH, HEADS * head), "ffn_norm": (WIDTH,), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH),
            "ffn_down": (WIDTH, HIDDEN),
        }  # fmt: skip
        shapes |= {f"blk.{i}.{name}": shape for name, shape in here.items()}
    tensors = {}
    for name, shape in shapes.items():
        kind = "F32" if len(shape) == 1 else next(k for end, k in kinds.items() if name.endswith(end))
        spread = 0.3 if name == "token_embd" else 0.06
        data = (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32) if len(shape) == 1 else packed(kind, shape, rng, spread)
        tensors[f"{name}.weight"] = (kind, data)
    return write(
        path, tensors, vocab_size=VOCAB, context_length=512, embedding_length=WIDTH, block_count=LAYERS, feed_forward_length=HIDDEN,
        attention__head_count=HEADS, attention__head_count_kv=GROUPS, attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=10000.0,
    )  # fmt: skip


def load(path: Path, **options: Any) -> loading.Loaded:
    return loading.load(Llama, str(path), **{"max_seq_len": 64, **options})


def run(loaded: loading.Loaded, ids: list[int], backend: str = "host", cache: str = "float32") -> np.ndarray:
    """Logits; with a cache of float32 unless told otherwise, so that the weights alone differ from the oracle's."""
    return Session(loaded.model(cache_dtype=cache), backend=backend).logits(ids).copy()


IDS = [int(i) for i in np.random.default_rng(4).integers(0, VOCAB, 24)]
Q4_K_M = {"token_embd": "Q6_K", "output": "Q6_K", "attn_v": "Q5_0", "ffn_down": "Q8_0", "ffn_up": "Q5_1", "": "Q4_K"}


@pytest.mark.parametrize("kind", ("F16", "BF16", "Q5_0", "Q5_1", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4"))
def test_a_model_of_one_kind_equals_the_oracle(tmp_path: Path, kind: str) -> None:
    """The weights that run are the package's numbers, and host's logits are the float32 oracle's on them."""
    loaded = load(model(tmp_path / "m.gguf", {"": kind}), activations="exact")
    theirs = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(str(tmp_path / "m.gguf")).tensors}
    down = numbers(loaded.weights["layers.1.ffn.down"])
    np.testing.assert_array_equal(bits(down), bits(theirs["blk.1.ffn_down.weight"].astype(np.float32)))
    np.testing.assert_array_equal(bits(numbers(loaded.weights["embedding.table"])), bits(theirs["token_embd.weight"].astype(np.float32)))
    want = loaded.twin(IDS)[-1]
    near, cache = (0.05, "bfloat16") if kind == "BF16" else (1e-4, "float32")  # bfloat16 weights compute in bfloat16
    assert np.abs(run(loaded, IDS, cache=cache) - want).max() < near * np.abs(want).max()


def test_a_mixed_file_runs_each_tensor_as_it_is(tmp_path: Path) -> None:
    """As in a Q4_K_M: five kinds in a file, each as it is stored and where it lies, and the line says which."""
    loaded = load(model(tmp_path / "mixed.gguf", Q4_K_M))
    weights = loaded.weights
    kinds = {"mixer.q": "q4_k", "mixer.v": "q5_0", "ffn.up": "q5_1", "ffn.down": "q8_0"}
    kinds = {f"layers.0.{name}": kind for name, kind in kinds.items()} | {"embedding.table": "q6_k", "head.matrix": "q6_k"}
    assert {path: weights[path].format.name for path in kinds} == kinds
    assert all(np.shares_memory(weights[path].data, loaded.checkpoint.file._file.bytes) for path in kinds)  # type: ignore[union-attr]
    assert loaded.run.activations == "int8_block" and loaded.run.cache_dtype == "float16"
    assert loaded.stored == "q4_k, q5_0, q5_1, q6_k, q8_0 as in the file"
    for said in ("GGUF 3", "llama", "q4_k", "q6_k", "mixed.gguf"):
        assert said in loaded.recognised and "\n" not in loaded.recognised
    exact = load(tmp_path / "mixed.gguf", activations="exact")
    want = exact.twin(IDS)[-1]
    for backend in ("host", "reference"):
        assert np.abs(run(exact, IDS, backend) - want).max() < 1e-4 * np.abs(want).max()
    assert np.abs(run(loaded, IDS) - want).std() < 0.05 * want.std()


def test_a_widened_file_takes_a_dtype(tmp_path: Path) -> None:
    """--dtype rounds each number once; the caches of quantised weights stay float16 unless told otherwise."""
    path = model(tmp_path / "k.gguf", {"": "Q4_K"})
    plain, half = load(path), load(path, dtype="float16")
    assert (plain.run.dtype, plain.run.cache_dtype, plain.run.activations) == ("float32", "float16", "int8_block")
    want = widen(plain.exact["layers.0.mixer.q"]).astype(np.float16)
    assert half.weights["layers.0.mixer.q"].dtype == np.float16 and half.stored == "float16 from q4_k"
    np.testing.assert_array_equal(half.weights["layers.0.mixer.q"], want)
    with pytest.raises(UsageError, match="int8_block needs block-quantised weights"):
        load(path, dtype="float16", activations="int8_block")


def test_weights_that_do_not_fit_are_refused_before_any_is_widened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says how much widening takes, how much is free, and what takes less."""
    path = model(tmp_path / "k.gguf", {"": "Q6_K"})
    monkeypatch.setattr("iron_lm.process.available_bytes", lambda: 1000)
    monkeypatch.setattr("iron_lm.loading.runnable", lambda array: pytest.fail("widened"))
    with pytest.raises(CheckpointError, match=r"weights take [\d.]+ MB of memory as they run; 0\.0 MB are free; --dtype float16"):
        load(path, dtype="float32")


def test_dense_and_kept_blocks_take_no_memory(tmp_path: Path) -> None:
    """F16 and BF16 matrices, and blocks with kernels, are views of the file."""
    for kind in ("F16", "BF16", "Q4_0", "Q8_0", "Q6_K"):
        loaded = load(model(tmp_path / f"{kind}.gguf", {"": kind}))
        array = loaded.weights["layers.0.ffn.gate"]
        held = array.data if isinstance(array, PackedArray) else array
        assert np.shares_memory(held, loaded.checkpoint.file._file.bytes)  # type: ignore[union-attr]
        assert loaded.stored == f"{FORMATS[int(gguf.GGMLQuantizationType[kind])]} as in the file"


def test_formats_name_every_type_they_are() -> None:
    """The numbers of ggml types are the package's, and so are the bytes of a block."""
    for number, format in FORMATS.items():
        kind = gguf.GGMLQuantizationType(number)
        group, size = gguf.GGML_QUANT_SIZES[kind]
        if not format.packed:
            assert (group, size) == (1, format.dtype.itemsize)
        else:
            assert (format.block[1], format.block_bytes, format.name.upper()) == (group, size, kind.name)
