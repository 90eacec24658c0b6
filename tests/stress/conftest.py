"""What is tried under load: how long, at which seed, and a small model of blocks whose tiles, tokenizer and trace are cached."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

#: Seconds for each test that goes on as long as it is given: `IRON_STRESS_SECONDS`.
SECONDS = float(os.environ.get("IRON_STRESS_SECONDS", "15"))


@pytest.fixture
def going() -> Callable[[], bool]:
    """`while going():` for as long as this test is given."""
    end = time.monotonic() + SECONDS
    return lambda: time.monotonic() < end


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Chance at `IRON_STRESS_SEED`, else at a seed that is printed where the test fails."""
    seed = int(os.environ.get("IRON_STRESS_SEED", time.time_ns() % 1_000_000))
    print(f"IRON_STRESS_SEED={seed}")
    return random.Random(seed)


WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCABULARY = 256, 1024, 6, 8, 4, 256


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF of random Q8_0 weights and a vocabulary of bytes, large enough that its tiles are kept in a file."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the file, is not installed")
    path = tmp_path_factory.mktemp("model") / "blocks.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, number in {
        "vocab_size": VOCABULARY, "context_length": 256, "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": HIDDEN, "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
    }.items():  # fmt: skip
        writer.add_uint32(f"llama.{key}", number)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {b: chr(b) for b in plain} | {b: chr(256 + n) for n, b in enumerate(sorted(set(range(256)) - set(plain)))}
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "gpt-2")
    writer.add_array("tokenizer.ggml.tokens", [*(shown[b] for b in range(255)), "hi"])
    writer.add_array("tokenizer.ggml.token_type", [1] * 256)
    writer.add_array("tokenizer.ggml.merges", [f"{shown[ord('h')]} {shown[ord('i')]}"])
    drawn = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = (drawn.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    keys = WIDTH // HEADS * KV_HEADS
    matrix("token_embd.weight", VOCABULARY, WIDTH)
    matrix("output.weight", VOCABULARY, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{norm}.weight", np.ones(WIDTH, np.float32))
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH), ("attn_k", keys, WIDTH), ("attn_v", keys, WIDTH), ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN),
        ):  # fmt: skip
            matrix(f"blk.{i}.{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
