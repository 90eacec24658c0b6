"""Small valid files, as values that can be damaged and as the bytes that are written of them."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import zipfile
from typing import Any

from fuzz.mutation import DEEP

# -- JSON -----------------------------------------------------------------------------------------


def dumped(value: Any) -> bytes:
    """JSON of any value of ours, with halves of characters as they are and `DEEP` written out."""
    text = json.dumps(value, ensure_ascii=False).replace(json.dumps(DEEP), "[" * 100_000 + "]" * 100_000)
    return text.encode("utf-8", "surrogatepass")


# -- GGUF -----------------------------------------------------------------------------------------

WIDTH, HIDDEN, HEADS = 32, 32, 2
_NUMBERS = {bool: (7, "<?"), int: (5, "<i"), float: (6, "<f")}


def _string(text: Any) -> bytes:
    raw = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Any, depth: int = 0) -> tuple[int, bytes]:
    """A metadata value's type and bytes; what GGUF has no word for becomes a text."""
    if isinstance(value, list) and depth < 8:
        items = [_typed(item, depth + 1) for item in value]
        return 9, struct.pack("<IQ", items[0][0] if items else 5, len(value)) + b"".join(raw for _, raw in items)
    if type(value) is int and not -(1 << 31) <= value < 1 << 31:
        return (11, struct.pack("<q", value)) if -(1 << 63) <= value < 1 << 63 else (10, struct.pack("<Q", value % (1 << 64)))
    if type(value) in _NUMBERS:
        kind, code = _NUMBERS[type(value)]
        try:
            return kind, struct.pack(code, value)
        except OverflowError:
            return 12, struct.pack("<d", value)
    return 8, _string(json.dumps(value) if isinstance(value, dict) else value)


def gguf_bytes(model: dict[str, Any]) -> bytes:
    """The file of a model: `metadata`, `tensors` (name, dims, kind, offset, bytes), `counts` added to the true ones."""
    metadata = model.get("metadata") if isinstance(model.get("metadata"), dict) else {}
    listed = model.get("tensors")
    tensors = [t for t in listed if isinstance(t, dict)] if isinstance(listed, list) else []
    more = model.get("counts")
    extra = [n if type(n) is int else 0 for n in (more if isinstance(more, list) else [])] + [0, 0]
    version = model.get("version", 3)
    out = b"GGUF" + struct.pack("<I", version % (1 << 32) if type(version) is int else 3)
    out += struct.pack("<QQ", (len(tensors) + extra[0]) % (1 << 64), (len(metadata) + extra[1]) % (1 << 64))
    for key, value in metadata.items():
        kind, raw = _typed(value)
        out += _string(key) + struct.pack("<I", kind) + raw
    for tensor in tensors:
        dims = tensor.get("dims")
        dims = [n if type(n) is int else 1 for n in (dims if isinstance(dims, list) else [])][:100]
        kind, offset = (tensor.get(name) if type(tensor.get(name)) is int else 0 for name in ("kind", "offset"))
        out += _string(tensor.get("name")) + struct.pack(f"<I{len(dims)}Q", len(dims), *(n % (1 << 64) for n in dims))
        out += struct.pack("<IQ", kind % (1 << 32), offset % (1 << 64))
    size = model.get("size")
    return out + bytes(-len(out) % 32) + bytes(min(max(size if type(size) is int else 0, 0), 1 << 18))


def byte_letters() -> list[str]:
    """The letter for each byte in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {b: chr(b) for b in plain} | {b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in plain)}
    return [shown[b] for b in range(256)]


def byte_vocabulary() -> dict[str, Any]:
    letters = byte_letters()
    space = letters[32]
    return {
        "model": "gpt2", "pre": "llama-bpe", "tokens": [*letters, f"{space}t", "he", "<s>", "</s>", "<|im_end|>"],
        "token_type": [1] * 258 + [3, 3, 3], "merges": [f"{space} t", "h e"], "bos_token_id": 258, "eos_token_id": 259,
        "add_bos_token": True, "padding_token_id": 0, "unknown_token_id": 1, "add_space_prefix": True,
    }  # fmt: skip


def spaced_vocabulary() -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "ab", "▁a", "▁ab", "c", "abc", "<end_of_turn>"]
    return {
        "model": "llama", "tokens": tokens, "scores": [float(-i) for i in range(len(tokens))],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * 8 + [4], "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0,
    }  # fmt: skip


TEMPLATE = "{% for m in messages %}<s>{{ m.role }}:{{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt %}A{% endif %}"


def gguf_model(vocabulary: dict[str, Any], kind: int = 0) -> dict[str, Any]:
    """A llama of one layer whose tensors are of a ggml type (0 F32, 8 Q8_0)."""
    size = {0: 4 * 32, 8: 34}[kind]
    vocab = len(vocabulary["tokens"])
    entries = {
        "vocab_size": vocab, "context_length": 64, "embedding_length": WIDTH, "block_count": 1, "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS, "attention.head_count_kv": 1, "attention.key_length": 16, "rope.dimension_count": 16,
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 2.0,
    }  # fmt: skip
    metadata = {"general.architecture": "llama", "general.name": "tiny", "general.alignment": 32}
    metadata |= {f"llama.{k}": v for k, v in entries.items()} | {f"tokenizer.ggml.{k}": v for k, v in vocabulary.items()}
    metadata["tokenizer.chat_template"] = TEMPLATE
    tensors, at = [], 0
    shapes = {"token_embd": vocab, "output": vocab, "output_norm": 0, "blk.0.attn_norm": 0, "blk.0.ffn_norm": 0, "blk.0.attn_q": 32}
    shapes |= {"blk.0.attn_k": 16, "blk.0.attn_v": 16} | dict.fromkeys(
        ("blk.0.attn_output", "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"), 32
    )
    for name, rows in shapes.items():
        tensors.append({"name": f"{name}.weight", "dims": [32, rows] if rows else [32], "kind": kind if rows else 0, "offset": at})
        at += -(-(rows * size if rows else 128) // 32) * 32
    return {"version": 3, "metadata": metadata, "tensors": tensors, "counts": [0, 0], "size": at}


# -- safetensors ----------------------------------------------------------------------------------

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 32, "max_position_embeddings": 64,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
    "eos_token_id": [2, 3], "bos_token_id": 1, "_name_or_path": "tiny",
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
    },
}  # fmt: skip
GENERATION = {"eos_token_id": [2, 3], "bos_token_id": 1, "temperature": 0.7, "top_p": 0.9, "do_sample": True}
PARAMS = {
    "dim": 32, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "vocab_size": 32, "multiple_of": 8, "ffn_dim_multiplier": 1.0,
    "norm_eps": 1e-5, "rope_theta": 10000.0, "use_scaled_rope": True,
}  # fmt: skip
_LAYER = {
    "input_layernorm": [32], "post_attention_layernorm": [32], "self_attn.q_proj": [32, 32], "self_attn.k_proj": [16, 32],
    "self_attn.v_proj": [16, 32], "self_attn.o_proj": [32, 32], "mlp.gate_proj": [32, 32], "mlp.up_proj": [32, 32],
    "mlp.down_proj": [32, 32],
}  # fmt: skip


def shapes() -> dict[str, list[int]]:
    found = {"model.embed_tokens.weight": [32, 32], "model.norm.weight": [32], "lm_head.weight": [32, 32]}
    return found | {f"model.layers.0.{name}.weight": shape for name, shape in _LAYER.items()}


def safetensors_model(tensors: dict[str, list[int]] | None = None) -> dict[str, Any]:
    """A safetensors header of tensors of these shapes (a llama's), and how many bytes follow it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in (tensors or shapes()).items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return {"header": header, "length": 0, "size": at}


def safetensors_bytes(model: dict[str, Any]) -> bytes:
    raw = dumped(model.get("header"))
    more, size = (model.get(name) if type(model.get(name)) is int else 0 for name in ("length", "size"))
    return struct.pack("<Q", (len(raw) + more) % (1 << 64)) + raw + bytes(min(max(size, 0), 1 << 16))


# -- LoRA adapters ------------------------------------------------------------------------------------

ADAPTER = {
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4, "bias": "none", "init_lora_weights": True, "use_rslora": True,
    "use_dora": False, "modules_to_save": None, "rank_pattern": {"v_proj": 3}, "alpha_pattern": {r"layers.0.(self_attn|mlp).v_proj": 6},
}  # fmt: skip
_ADAPTED = {"self_attn.q_proj": (32, 2), "self_attn.v_proj": (16, 3), "mlp.down_proj": (32, 2)}


def adapter_model() -> dict[str, Any]:
    """A safetensors header of an adapter of some matrices of that llama, and how many bytes follow it."""
    found: dict[str, list[int]] = {}
    for name, (rows, rank) in _ADAPTED.items():
        module = f"base_model.model.model.layers.0.{name}"
        found |= {f"{module}.lora_A.weight": [rank, 32], f"{module}.lora_B.weight": [rows, rank]}
    return safetensors_model(found)


def gguf_adapter() -> dict[str, Any]:
    """An adapter of some matrices of `gguf_model`."""
    metadata = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 4.0}
    tensors, at = [], 0
    for name, rows in {"blk.0.attn_q": 32, "blk.0.attn_v": 16, "blk.0.ffn_down": 32}.items():
        for part, dims in {"lora_a": [32, 2], "lora_b": [2, rows]}.items():
            tensors.append({"name": f"{name}.weight.{part}", "dims": dims, "kind": 0, "offset": at})
            at += 4 * math.prod(dims)
    return {"version": 3, "metadata": metadata, "tensors": tensors, "counts": [0, 0], "size": at}


# -- GPTQ, AWQ ------------------------------------------------------------------------------------


def packed_model(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A safetensors header of some packed matrices and a vector, with the bytes that follow it, whose scales are small numbers; and what
    their packer says of them."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    method = rng.choice(("gptq", "gptq", "awq"))
    for name, (n, k) in {"self_attn.q_proj": (32, 64), "self_attn.k_proj": (16, 64), "mlp.down_proj": (32, 32)}.items():
        shapes = {"qweight": [k // 8, n] if method == "gptq" else [k, n // 8], "qzeros": [k // 32, n // 8], "scales": [k // 32, n]}
        for part, shape in shapes.items():
            size = math.prod(shape) * (2 if part == "scales" else 4)
            dtype = "F16" if part == "scales" else "I32"
            header[f"model.layers.0.{name}.{part}"] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
            byte = 0x77 if part == "qzeros" else rng.randrange(0x20, 0x3F)
            data += bytes([byte]) * size
    header["model.norm.weight"] = {"dtype": "F32", "shape": [32], "data_offsets": [len(data), len(data) + 128]}
    said: dict[str, Any] = {"quant_method": method, "bits": 4, "group_size": 32}
    said |= {"sym": True, "desc_act": False, "checkpoint_format": "gptq"} if method == "gptq" else {"zero_point": True, "version": "gemm"}
    return {"header": header, "length": 0, "data": data + bytes(128)}, said


# -- Q4NX -----------------------------------------------------------------------------------------

#: Matrices, each of one chunk whose kind is drawn, or of as many as it takes at 32 columns a chunk of MXFP4.
Q4NX_MATRICES = ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight", "lm_head.weight")
Q4NX_CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 1,
    "num_key_value_heads": 1, "num_hidden_layers": 1, "head_dim": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}  # fmt: skip


def q4nx_model(rng: random.Random) -> dict[str, Any]:
    """A Q4NX header of some matrices and a vector, and the bytes that follow it, whose scales are small numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}, "version": 2}
    data = b""
    for name in Q4NX_MATRICES:
        size, dtype = rng.choice(((5120, "I8"), (5120, "I8"), (5120, "Q4NX"), (8704, "I8"), (4736, "I8"), (2560, "I8")))
        shape = [32, 32] if dtype == "Q4NX" else rng.choice(([1, size], [1, 1, size]))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes([rng.randrange(0x20, 0x3F)]) * size
    header["model.norm.weight"] = {"dtype": "BF16", "shape": [32], "data_offsets": [len(data), len(data) + 64]}
    return {"header": header, "length": 0, "data": data + bytes(64)}


def q4nx_bytes(model: dict[str, Any]) -> bytes:
    raw, data, more = dumped(model.get("header")), model.get("data"), model.get("length")
    length = len(raw) + (more if type(more) is int else 0)
    return struct.pack("<Q", length % (1 << 64)) + raw + (data if isinstance(data, bytes) else b"")


# -- torch.save -----------------------------------------------------------------------------------


def meta_shapes() -> dict[str, list[int]]:
    """Tensors of Meta's layout."""
    rows = {
        "tok_embeddings": [32, 32], "norm": [32], "output": [32, 32], "layers.0.attention_norm": [32], "layers.0.ffn_norm": [32],
        "layers.0.attention.wq": [32, 32], "layers.0.attention.wk": [16, 32], "layers.0.attention.wv": [16, 32],
        "layers.0.attention.wo": [32, 32], "layers.0.feed_forward.w1": [32, 32], "layers.0.feed_forward.w2": [32, 32],
        "layers.0.feed_forward.w3": [32, 32],
    }  # fmt: skip
    return {f"{name}.weight": shape for name, shape in rows.items()}


def pth_model(rows: dict[str, list[int]]) -> dict[str, Any]:
    """Tensors of these shapes, each in a storage of its own."""
    tensors = {
        name: {
            "key": str(i),
            "kind": "HalfStorage",
            "numel": math.prod(s),
            "offset": 0,
            "shape": s,
            "strides": [s[-1], 1] if len(s) > 1 else [1],
        }
        for i, (name, s) in enumerate(rows.items())
    }
    return {"tensors": tensors, "sizes": {str(i): 2 * math.prod(s) for i, s in enumerate(rows.values())}, "order": "little"}


def _text(word: Any) -> bytes:
    raw = str(word).encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def _item(value: Any) -> bytes:
    """The pickle's instructions for a plain value."""
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)[:255]
        return b"\x8a" + bytes([len(raw)]) + raw
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, list):
        return b"(" + b"".join(_item(v) for v in value[:99]) + b"t"
    return _text(value)


def pickle_bytes(model: dict[str, Any]) -> bytes:
    tensors = model.get("tensors")
    out = b"\x80\x02}("
    for name, t in (tensors if isinstance(tensors, dict) else {}).items():
        t = t if isinstance(t, dict) else {}
        kind = str(t.get("kind"))[:100].encode("ascii", "replace").replace(b"\n", b"?")
        storage = b"(" + _text("storage") + b"ctorch\n" + kind + b"\n" + _item(t.get("key")) + _text("cpu") + _item(t.get("numel")) + b"tQ"
        rest = _item(t.get("offset")) + _item(t.get("shape")) + _item(t.get("strides")) + b"\x89ccollections\nOrderedDict\n)R"
        out += _text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"
    return out + b"u."


def pth_bytes(model: dict[str, Any], pickled: bytes) -> bytes:
    raw = io.BytesIO()
    sizes = model.get("sizes")
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", str(model.get("order")).encode("utf-8", "replace"))
        for key, size in (sizes if isinstance(sizes, dict) else {}).items():
            name = f"archive/data/{key}".encode("ascii", "replace").decode()[:200].split("\0")[0]
            archive.writestr(zipfile.ZipInfo(name), bytes(min(max(size, 0), 1 << 14) if type(size) is int else 0))
    return raw.getvalue()


# -- tokenizers -----------------------------------------------------------------------------------


def tokenizer_json(kind: str) -> dict[str, Any]:
    """A tokenizer.json with a model of this kind, and of every other part something."""
    letters = byte_letters()
    added = [
        {"id": 260 + i, "content": text, "single_word": False, "lstrip": i == 1, "rstrip": False, "normalized": i == 1, "special": i != 1}
        for i, text in enumerate(("<s>", "word", "<|im_end|>"))
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    normal: Any = {
        "type": "Sequence",
        "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"String": "zz"}, "content": "y"}, {"type": "Lowercase"}],
    }
    split: Any = {
        "type": "Sequence",
        "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\d{1,3}"}, "behavior": "Isolated", "invert": False}, level],
    }
    decoder: Any = level
    vocab = {text: i for i, text in enumerate([*letters, "he", "th"])}
    if kind == "BPE":
        model: dict[str, Any] = {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": [["h", "e"], ["t", "h"]],
        }  # fmt: skip
    elif kind == "Unigram":
        model = {
            "type": "Unigram",
            "unk_id": 0,
            "vocab": [["<unk>", 0.0], ["▁", -1.0], ["a", -2.0], ["b", -2.5], ["▁ab", -0.5], ["<0x41>", -9.0]],
            "byte_fallback": True,
        }
        split = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
        decoder = {
            "type": "Sequence",
            "decoders": [split, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
        }
    elif kind == "WordPiece":
        words = ["[UNK]", "a", "b", "##a", "##b", "ab", "the"]
        model = {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {w: i for i, w in enumerate(words)},
        }
        normal = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
        split, decoder = {"type": "BertPreTokenizer"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}
    else:
        model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"}
        split = {"type": "Whitespace"}
    post = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [260], "tokens": ["<s>"]}},
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "a"},
        "added_tokens": added, "normalizer": normal, "pre_tokenizer": split, "post_processor": post, "decoder": decoder, "model": model,
    }  # fmt: skip


TOKENIZER_CONFIG = {
    "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False, "special": True}, "unk_token": None, "chat_template": TEMPLATE,
    "add_bos_token": True, "legacy": False, "model_max_length": 1000000000000000019884624838656,
    "additional_special_tokens": ["<a>", {"content": "<b>"}],
    "added_tokens_decoder": {
        "300": {"content": "<x>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True},
    },
}  # fmt: skip
ADDED_TOKENS = {"<extra>": 301, "<more>": 302}
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "additional_special_tokens": ["<a>"]}


def sentencepiece_model(kind: int) -> list[Any]:
    """A ModelProto as fields [number, value]: bytes are ["text"], messages lists of fields. kind: 1 unigram, 2 BPE."""
    words = [
        ("<unk>", 2),
        ("<s>", 3),
        ("</s>", 3),
        *((f"<0x{i:02X}>", 6) for i in range(256)),
        *((w, 1) for w in ("▁", "a", "b", "ab", "▁a", "▁ab")),
        ("<u>", 4),
    ]
    pieces = [[1, [[1, word], [2, float(-i)], [3, type]]] for i, (word, type) in enumerate(words)]
    trainer = [[3, kind], [4, len(words)], [35, True], [40, 0], [41, 1], [42, 2], [43, -1]]
    return [*pieces, [2, trainer], [3, [[1, "identity"], [3, True], [4, True], [5, True]]]]


def _varint(n: int) -> bytes:
    n %= 1 << 64
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def proto_bytes(fields: Any, depth: int = 0) -> bytes:
    """A protobuf message of fields [number, value]; what is no such field is left out."""
    out = b""
    for field in fields if isinstance(fields, list) and depth < 20 else []:
        if not isinstance(field, list) or len(field) != 2 or type(field[0]) is not int:
            continue
        number, value = field[0] % (1 << 20), field[1]
        if isinstance(value, float):
            try:
                out += _varint(number << 3 | 5) + struct.pack("<f", value)
            except OverflowError:
                out += _varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            raw = proto_bytes(value, depth + 1) if isinstance(value, list) else str(value).encode("utf-8", "surrogatepass")
            out += _varint(number << 3 | 2) + _varint(len(raw)) + raw
    return out


# -- ONNX -----------------------------------------------------------------------------------------


def onnx_model(rng: random.Random) -> tuple[list[Any], bytes]:
    """A ModelProto as fields [number, value], of two products whose matrices are integers in blocks, and the bytes that its tensors
    lie in."""
    data, initializers = b"", []
    for name, kind, dims, size in (
        ("a.weight_Q4", 2, (32, 1, 16), 512), ("a.weight_scales", 1, (32, 1), 128), ("b.weight_DQ_Q4", 21, (32, 32), 512),
        ("b.weight_DQ_scales", 10, (1, 32), 64), ("b.weight_DQ_zero_points", 21, (1, 32), 16), ("n.weight", 1, (32,), 128),
    ):  # fmt: skip
        places = {"location": "model.onnx.data", "offset": str(len(data)), "length": str(size)}
        where = [[13, [[1, key], [2, value]]] for key, value in places.items()]
        initializers.append([5, [*([1, n] for n in dims), [2, kind], [8, name], *where, [14, 1]]])
        data += bytes([rng.randrange(0x20, 0x3F)]) * size

    def node(kind: str, inputs: list[str], output: str, domain: str = "", **said: int) -> list[Any]:
        entries = [[5, [[1, name], [3, value], [20, 2]]] for name, value in said.items()]
        return [1, [*([1, name] for name in inputs), [2, output], [3, f"/m/{kind}"], [4, kind], *entries, [7, domain]]]

    nodes = [
        node("MatMulNBits", ["x", "a.weight_Q4", "a.weight_scales"], "y", "com.microsoft", K=32, N=32, bits=4, block_size=32),
        node("DequantizeLinear", ["b.weight_DQ_Q4", "b.weight_DQ_scales", "b.weight_DQ_zero_points"], "b", axis=0, block_size=32),
        node("MatMul", ["x", "b"], "z"),
    ]
    return [[1, 10], [2, "tests"], [7, [*nodes, [2, "g"], *initializers]], [8, [[1, ""], [2, 21]]]], data


# -- Iron's own -----------------------------------------------------------------------------------

ENTRY_POINTS = """[console_scripts]
iron = _iron_start:iron

[iron.operators.v1]
SiLU = iron_ops_aie.elementwise.silu:SiLU
[iron.backends.v1]
host = iron_host.backend:HostBackend
[iron.lowerings.v1]
host.iron_ops_aie.SiLU = iron_host.lowerings.elementwise:SiLU
"""
PROFILE = {"entries": [{"operator": "GEMV", "M": 64, "K": 64, "tile_size_input": 4}, {"operator": "SiLU", "size": 128, "tile_size": 64}]}


# -- device configurations ------------------------------------------------------------------------

#: Kinds of two sections of an xclbin.
METADATA, PARTITION = 2, 32
XML = b'<?xml version="1.0"?><project><core><kernel name="MLIR_AIE" type="dpu"><arg name="opcode"/></kernel></core></project>'


def xclbin(metadata: bytes = XML, kinds: tuple[int, ...] = (6, PARTITION, METADATA, 8)) -> bytes:
    """An xclbin of these sections; those that nobody looks into hold 32 zeros."""
    header = bytearray(0x1C8)
    header[:8] = b"xclbin2\0"
    header[8:0x128] = b"\xff" * 0x120
    struct.pack_into("<I", header, 0x1C0, len(kinds))
    table, body, at = b"", b"", 0x1C8 + 40 * len(kinds)
    for kind in kinds:
        data = metadata if kind == METADATA else bytes(32)
        table += struct.pack("<I16s4xQQ", kind, b"", at + len(body), len(data))
        body += data.ljust(-(-len(data) // 8) * 8, b"\0")
    whole = bytes(header) + table + body
    return whole[:0x130] + struct.pack("<Q", len(whole)) + whole[0x138:]
