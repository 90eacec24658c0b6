"""Keys: which operators build one array, which are one design, and that keys print alike in every process."""

from __future__ import annotations

import pytest

from iron_core.array.build import build
from iron_core.declare.identity import array_key, contract_key, design_key
from iron_core.devices import device
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, ReLU, SiLU

NPU2 = device("npu2")
_TILES = dict(tile_m=16, tile_k=64, tile_n=32, num_aie_columns=4)
_LLAMA = dict(heads_interleaved=True, kv_interleaved=True)
#: Pairs of one array: what differs is an extent, a number of batches or a pattern, with the tunables held.
PAIRS = {
    "add": (ElementwiseAdd(size=4096, tile_size=256, num_aie_columns=4), ElementwiseAdd(size=8192, tile_size=256, num_aie_columns=4)),
    "silu": (SiLU(size=1024, tile_size=64, num_aie_columns=2), SiLU(size=65536, tile_size=64, num_aie_columns=2)),
    "relu": (ReLU(size=1024, tile_size=64, num_aie_columns=2), ReLU(size=4096, tile_size=64, num_aie_columns=2)),
    "gemv rows": tuple(GEMV(M=m, K=256, num_aie_columns=4, tile_size_input=2, tile_size_output=8) for m in (64, 4096)),
    "gemv batches": tuple(
        GEMV(M=64, K=64, num_batches=b, num_aie_columns=2, tile_size_input=2, tile_size_output=8) for b in (1, 6)
    ),
    "gemv repeat": tuple(
        GEMV(M=64, K=64, num_batches=6, repeat=n, num_aie_columns=2, tile_size_input=2, tile_size_output=8) for n in (1, 3)
    ),
    "gemm": tuple(GEMM(M=m, K=k, N=n, **_TILES) for m, k, n in ((64, 64, 128), (256, 1024, 256))),
    "gemm exact": tuple(
        GEMM(M=m, K=k, N=n, b_col_maj=True, prio_accuracy=True, **_TILES) for m, k, n in ((64, 64, 128), (128, 192, 384))
    ),
    "mha prompt": tuple(
        MHA(num_heads=h, num_KV_heads=g, seq_len=n, kv_len=m, B_q=32, num_pipelines=2)
        for h, g, n, m in ((2, 2, 64, 64), (6, 2, 128, 256))
    ),
    "mha one query": tuple(
        MHA(num_heads=h, num_KV_heads=g, seq_len=1, kv_len=m, B_q=16, num_pipelines=2, **_LLAMA) for h, g, m in ((6, 2, 64), (12, 4, 256))
    ),
    "gather": tuple(Copy(input_size=64 * n, gather=True, table_rows=n, rows=16, num_channels=1) for n in (8, 64)),
    "copy": tuple(Copy(input_size=n, tile_size=512, num_channels=2) for n in (2048, 8192)),
}  # fmt: skip


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("name", PAIRS)
def test_two_extents_have_one_array(name, dev):
    """The same object: nothing of an extent is in it. Printed: `tests/sim/test_identity.py`."""
    one, two = (build(op, dev).design for op in PAIRS[name])
    assert one.array is two.array
    assert one.sequence != two.sequence


@pytest.mark.parametrize(
    "change",
    [dict(tile_size=64), dict(num_aie_columns=2), dict(num_channels=2)],
)
def test_a_tunable_of_the_array_makes_another(change):
    base = dict(size=8192, tile_size=128, num_aie_columns=4, num_channels=1)
    one, two = build(SiLU(**base), "npu2").design, build(SiLU(**base | change), "npu2").design
    assert one.array != two.array


def test_keys_nest():
    """Equal designs have equal arrays; equal contracts may be different designs."""
    one = SiLU(size=8192, tile_size=128).resolved(NPU2)
    two = SiLU(size=8192, tile_size=64).resolved(NPU2)
    more = SiLU(size=16384, tile_size=128).resolved(NPU2)
    assert contract_key(one) == contract_key(two) and design_key(one) != design_key(two)
    assert array_key(one) == array_key(more) and design_key(one) != design_key(more)
    assert array_key(one) != array_key(two)


def test_operators_of_one_shape_are_not_one_array():
    assert array_key(SiLU(size=4096).resolved(NPU2)) != array_key(ElementwiseAdd(size=4096).resolved(NPU2))


def test_keys_are_plain_data():
    """Strings, numbers and tuples: they hash and print alike in every process."""

    def plain(value):
        return value is None or isinstance(value, (str, int, float)) or (isinstance(value, tuple) and all(map(plain, value)))

    for op in (SiLU(size=4096), GEMV(M=64, K=64), ElementwiseAdd(size=4096)):
        op = op.resolved(NPU2)
        assert plain(array_key(op)) and plain(design_key(op)) and plain(contract_key(op))
