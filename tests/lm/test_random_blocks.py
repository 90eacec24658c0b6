"""Random weights in blocks: drawn as they are stored, with the spread of dense ones."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.declare.formats import SUPERBLOCKS, PackedArray
from iron_core.errors import UsageError
from iron_host import tiling
from iron_lm import arithmetic, loading
from iron_lm.checkpoints import checkpoint
from iron_lm.generation.session import Session
from iron_lm.parts.rotary import RotaryConfig
from iron_qwen2_moe.model import Qwen2Moe

SMALL = dict(
    vocab_size=512, hidden_size=128, num_layers=1, num_heads=4, num_kv_heads=4, head_dim=32, intermediate_size=96, expert_size=64,
    num_experts=6, shared_size=96, rotary=RotaryConfig(32), max_positions=64,
)  # fmt: skip
CONFIG = attrs.evolve(Qwen2Moe.full_size(), **SMALL)
#: Rows of superblocks are whole ones of 256 numbers.
WIDE = attrs.evolve(CONFIG, hidden_size=256, head_dim=64, intermediate_size=256, expert_size=256, shared_size=256, rotary=RotaryConfig(64))


@pytest.mark.parametrize("dtype", loading.RANDOM_BLOCKS)
def test_a_model_of_random_blocks_is_its_twin(dtype: str) -> None:
    """Its matrices have the variance of dense ones, or about that where scales are integers too, its vectors are float32, and it runs as a
    file of these blocks does."""
    config, near = (WIDE, 0.6) if loading.RANDOM_BLOCKS[dtype] in SUPERBLOCKS else (CONFIG, 0.05)
    loaded = loading.random(Qwen2Moe, config, 3, dtype=dtype)
    assert loaded.stored == f"random {dtype}" and loaded.run.activations == "int8_block" and loaded.run.dtype == "float32"
    every = []
    for path, array in loaded.weights.items():
        if array.ndim > 1:
            every.append(array.dequantize().ravel() * np.sqrt(array.shape[-1]))
            assert array.format.name == dtype and (near > 0.5 or abs(every[-1].std() - 1) < near), path
        else:
            assert array.dtype == np.float32
    numbers = np.concatenate(every)
    assert abs(numbers.std() - 1) < near and abs(numbers.mean()) < 0.2
    ids, again = list(range(1, 30)), loading.random(Qwen2Moe, config, 3, dtype=dtype)
    assert all(np.array_equal(_bytes(array), _bytes(again.weights[path])) for path, array in loaded.weights.items())
    want = loaded.twin(ids)[-1]
    assert np.abs(Session(loaded.model(), backend="host").logits(ids) - want).max() < 0.2 * want.std()


def _bytes(array: np.ndarray | PackedArray) -> np.ndarray:
    return array.data if isinstance(array, PackedArray) else array


def _most(run: Callable[[], Any]) -> tuple[Any, int, int]:
    """What it gives, and the bytes of arrays that stayed and that there were at most."""
    gc.collect()
    tracemalloc.start()
    try:
        found = run()
        gc.collect()
        return found, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def test_blocks_are_drawn_where_they_are_asked_for() -> None:
    """A model that nobody runs takes next to no memory, and one of its matrices its own bytes, as long as somebody holds them."""
    wide = attrs.evolve(CONFIG, vocab_size=1 << 16)
    loaded, _, most = _most(lambda: loading.random(Qwen2Moe, wide, 0, dtype="q4_0"))
    table = loaded.weights["embedding.table"]
    assert most < table.nbytes // 2
    data, _, most = _most(lambda: table.data)
    assert table.nbytes == data.nbytes <= most < table.nbytes + (4 << 20), "drawn as they are stored, not from numbers"
    again, _, most = _most(lambda: table.data)
    assert np.shares_memory(again, data) and most < 1 << 16


def test_rows_do_not_stay_beside_their_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a running model's matrices memory holds one copy: a group of them is drawn, put in tiles and forgotten. What is looked up by
    rows stays."""
    real, held, most = checkpoint._drawn_blocks, [0], [0]

    def drawing(*given: Any) -> np.ndarray:
        made = real(*given)
        held[0] += made.nbytes
        most[0] = max(most[0], held[0])
        weakref.finalize(made, lambda nbytes: held.__setitem__(0, held[0] - nbytes), made.nbytes)
        return made

    monkeypatch.setattr(checkpoint, "_drawn_blocks", drawing)
    monkeypatch.setattr(tiling, "MADE", 1 << 17)
    loaded = loading.random(Qwen2Moe, attrs.evolve(CONFIG, num_layers=4, num_experts=16), 0, dtype="q4_0")
    session = Session(loaded.model(), backend="host")
    assert held == most == [0]
    got = session.logits([1, 2, 3])
    sizes = {path: array.nbytes for path, array in loaded.weights.items() if array.ndim > 1}
    table = sizes.pop("embedding.table")
    gc.collect()
    assert 4 * (tiling.MADE + max(sizes.values()) + table) < sum(sizes.values())
    # A group may be let go a little after the next has begun.
    assert held == [table] and most[0] <= 2 * (tiling.MADE + max(sizes.values())) + table
    assert np.abs(got - loaded.twin([1, 2, 3])[-1]).max() < 0.2 * got.std()


def test_a_files_weights_are_no_random_blocks() -> None:
    """What a file stores is widened to floats, or runs as it is."""
    with pytest.raises(UsageError, match="dtype=q4_0; legal: bfloat16, float32, float16"):
        arithmetic.arithmetic_of(None, np.dtype(np.float32), "q4_0", None)
