"""Random weights in blocks: drawn as they are stored, with the spread of dense ones."""

from __future__ import annotations

import tracemalloc

import attrs
import numpy as np
import pytest

from iron_core.declare.formats import PackedArray
from iron_core.errors import UsageError
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.parts.rotary import RotaryConfig
from iron_qwen2_moe.model import Qwen2Moe

SMALL = dict(
    vocab_size=512, hidden_size=128, num_layers=1, num_heads=4, num_kv_heads=4, head_dim=32, intermediate_size=96, expert_size=64,
    num_experts=6, shared_size=96, rotary=RotaryConfig(32), max_positions=64,
)  # fmt: skip
CONFIG = attrs.evolve(Qwen2Moe.full_size(), **SMALL)


@pytest.mark.parametrize("dtype", loading.RANDOM_BLOCKS)
def test_a_model_of_random_blocks_is_its_twin(dtype: str) -> None:
    """Its matrices have the variance of dense ones, its vectors are float32, and it runs as a file of these blocks does."""
    loaded = loading.random(Qwen2Moe, CONFIG, 3, dtype=dtype)
    assert loaded.stored == f"random {dtype}" and loaded.run.activations == "int8_block" and loaded.run.dtype == "float32"
    for path, array in loaded.weights.items():
        if array.ndim > 1:
            numbers = array.dequantize() * np.sqrt(array.shape[-1])
            assert array.format.name == dtype and abs(numbers.std() - 1) < 0.05 and abs(numbers.mean()) < 0.2, path
        else:
            assert array.dtype == np.float32
    ids, again = list(range(1, 30)), loading.random(Qwen2Moe, CONFIG, 3, dtype=dtype)
    assert all(np.array_equal(_bytes(array), _bytes(again.weights[path])) for path, array in loaded.weights.items())
    want = loaded.twin(ids)[-1]
    assert np.abs(Session(loaded.model(), backend="host").logits(ids) - want).max() < 0.2 * want.std()


def _bytes(array: np.ndarray | PackedArray) -> np.ndarray:
    return array.data if isinstance(array, PackedArray) else array


def test_blocks_are_never_numbers() -> None:
    """Drawing them takes little more memory than they have."""
    wide = attrs.evolve(CONFIG, vocab_size=1 << 15)
    tracemalloc.start()
    try:
        loaded = loading.random(Qwen2Moe, wide, 0, dtype="q4_0")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    held = sum(_bytes(array).nbytes for array in loaded.weights.values())
    assert most < held + (8 << 20)


def test_a_files_weights_are_no_random_blocks() -> None:
    """What a file stores is widened to floats, or runs as it is."""
    with pytest.raises(UsageError, match="dtype=q4_0; legal: bfloat16, float32, float16"):
        loading.arithmetic_of(None, np.dtype(np.float32), "q4_0", None)
