"""The tiny Llama that transformers made: llama3 scaling, 4 query heads a KV head, an untied head."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.cli import main
from iron_llama.model import Llama
from iron_lm.checkpoints import huggingface, names
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.sources import source_of
from iron_lm.decoder_config import DecoderConfig
from iron_lm.loading import Loaded
from iron_lm.parts.decoder import Decoder
from iron_lm.run import Run

TINY = Path(__file__).parents[1] / "data" / "tiny_llama"


class Tiny:
    """Weights, ids and the logits transformers gave after each id."""

    def __init__(self) -> None:
        self.checkpoint = Checkpoint.open(TINY)
        stored = np.load(TINY / "outputs.npz")
        self.ids = [int(i) for i in stored["ids"]]
        self.logits = stored["logits"]

    def config(self, **changes: Any) -> DecoderConfig:
        entries = huggingface.entries_of(self.checkpoint.metadata["config"])
        return DecoderConfig(**huggingface.decoder(entries) | changes)

    def loaded(self, config: DecoderConfig | None = None, **changes: Any) -> Loaded:
        """In float32, a context of 128 and chunks of 32; `changes` to the run."""
        config = config or self.config()
        run = Run(**dict(max_seq_len=128, prefill_chunk=32, dtype="float32", cache_dtype="float32") | changes)
        weights = self.checkpoint.take(Llama.build(config, run).tensors(), names.HUGGINGFACE)
        return Loaded(Llama, config, run, weights, weights, None, self.checkpoint, run.max_seq_len, "float32 as in the file")

    def model(self, **changes: Any) -> Decoder:
        """The graph; `changes` to the run."""
        return self.loaded(**changes).model()


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return Tiny()


class Terminal(io.StringIO):
    """Standard input of somebody who types nothing."""

    def isatty(self) -> bool:
        return True


def gguf_permutation(weight: np.ndarray, heads: int) -> np.ndarray:
    """Query or key rows reordered as llama.cpp's converter does: the two halves of a head become neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def llama3_factors(config: Any) -> np.ndarray:
    """The divisors of each frequency that llama.cpp's converter writes for llama3 scaling."""
    _, (factor, low, high, original) = config.rotary.scaling
    factors = []
    for i in range(0, config.head_dim, 2):
        wavelength = 2 * np.pi * config.rotary.base ** (i / config.head_dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def write_gguf(
    path: Path,
    tiny: Tiny,
    kind: str = "F32",
    *,
    head: str | None = None,
    tied: bool = False,
    metadata: dict[str, Any] | None = None,
) -> Path:
    """The tiny Llama as a GGUF whose matrices are of a ggml type; `metadata` replaces or, with None, drops entries.

    Without tokenizer, unless `metadata` brings one. head: the head's own type. tied: the head's tensor is left out.
    """
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    c = tiny.config()
    entries: dict[str, Any] = {
        "llama.vocab_size": c.vocab_size,
        "llama.context_length": 4096,
        "llama.embedding_length": c.hidden_size,
        "llama.block_count": c.num_layers,
        "llama.feed_forward_length": c.intermediate_size,
        "llama.attention.head_count": c.num_heads,
        "llama.attention.head_count_kv": c.num_kv_heads,
        "llama.attention.key_length": c.head_dim,
        "llama.attention.layer_norm_rms_epsilon": float(c.norm_epsilon),
        "llama.rope.freq_base": float(c.rotary.base),
    } | (metadata or {})
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, value in entries.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    paths = Llama.build(attrs.evolve(c, tied=tied), Run(128)).tensors()
    there_of = {source_of(names.HUGGINGFACE, path).names[0]: source_of(names.GGUF, path).names[0] for path in paths}
    writer.add_tensor("rope_freqs.weight", llama3_factors(c))
    for name, there in there_of.items():
        values = np.asarray(tiny.checkpoint.tensors[name][2]).astype(np.float32)
        if ".q_proj" in name or ".k_proj" in name:
            values = gguf_permutation(values, c.num_heads if ".q_proj" in name else c.num_kv_heads)
        own = head if head is not None and there == "output.weight" else kind
        quant = gguf.GGMLQuantizationType["F32" if values.ndim == 1 else own]
        stored = values.astype(np.int8) if own == "I8" else gguf.quantize(values, quant)
        writer.add_tensor(there, stored, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def tiny_gguf(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """tiny_gguf(kind="F32", **changes) -> the path of a new GGUF of the tiny Llama; see `write_gguf`."""

    def write(kind: str = "F32", **changes: Any) -> Path:
        return write_gguf(tmp_path_factory.mktemp("gguf") / f"tiny-{kind}.gguf", tiny, kind, **changes)

    return write


def byte_vocabulary() -> dict[str, Any]:
    """Metadata of a byte-level tokenizer of 256 tokens: every byte UTF-8 uses, two merges, and two control tokens.

    Ids 252 `<s>` and 253 `</s>` (the stop), 254 and 255 what " t" and "he" merge into, in the places of bytes that never occur.
    """
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {b: chr(b) for b in plain}
    shown |= {b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in shown)}
    space = shown[ord(" ")]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*(shown[b] for b in range(252)), "<s>", "</s>", f"{space}t", "he"],
        "tokenizer.ggml.token_type": [1] * 252 + [3, 3, 1, 1],
        "tokenizer.ggml.merges": [f"{space} t", "h e"],
        "tokenizer.ggml.bos_token_id": 252,
        "tokenizer.ggml.eos_token_id": 253,
        "tokenizer.ggml.add_bos_token": True,
    }


@pytest.fixture(scope="session")
def byte_metadata() -> dict[str, Any]:
    """`byte_vocabulary`, for tests that change it."""
    return byte_vocabulary()


@pytest.fixture(scope="session")
def pth() -> Any:
    """The module beside this one that writes files as torch.save does."""
    spec = importlib.util.spec_from_file_location("pth", Path(__file__).with_name("pth.py"))
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


@pytest.fixture(scope="session")
def talking(tiny_gguf: Any) -> Path:
    """The tiny Llama as a float32 GGUF with a tokenizer of bytes."""
    return Path(tiny_gguf(metadata=byte_vocabulary()))


@pytest.fixture
def line(talking: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """(exit status, standard output, standard error) of `iron-run llama` over the tiny Llama, at a terminal: nothing is piped in."""
    monkeypatch.setattr("sys.stdin", Terminal())

    def run(*argv: object, checkpoint: Path = talking) -> tuple[int, str, str]:
        status = main(["run", "llama", "--checkpoint", str(checkpoint), *map(str, argv)])
        return status, *capsys.readouterr()

    return run
