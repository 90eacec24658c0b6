"""What operators ask of mlir-aie's kernel factories is what these take: names of factories and of their keywords."""

from __future__ import annotations

from functools import cache

import pytest

from iron_core.array.build import build
from iron_core.declare.cases import cases
from iron_core.devices import device
from iron_core.errors import IronError
from tests.catalog import PLACES

#: Factories of `aie.iron.kernels` and the keywords that each takes, of mlir-aie's main branch from September to October 2026
#: (python/iron/kernels: conv 027f5ed, datamovement 05b6ffa, linalg 02ee6dc, norm 082f381, zero 018c148). `output_rows` of mv, and of mha
#: what stands behind its sizes, are younger, and known by how IRON's operators of October call them.
PUBLISHED = {
    "activation.gelu_sized": "tile_size",
    "activation.leaky_relu": "tile_size",
    "activation.sigmoid": "tile_size use_lut",
    "activation.silu_sized": "tile_size",
    "activation.softmax": "tile_size",
    "activation.tanh": "tile_size use_lut",
    "conv.dwconv1d_channels_last": "channels clamp",
    "datamovement.axpy": "tile_size vectorized",
    "datamovement.convert_copy": "tile_size",
    "datamovement.expand": "tile_size group_size",
    "datamovement.rope": "tile_size two_halves cols",
    "datamovement.transpose": "dim_m dim_n subtile dtype",
    "eltwise.add_sized": "tile_size",
    "eltwise.clamp": "tile_size",
    "eltwise.mul_sized": "tile_size",
    "eltwise.passthrough": "tile_size dtype",
    "eltwise.relu_sized": "tile_size",
    "linalg.mha": "dim_m dim_k dim_n b_col_maj emulate_bf16_mmul_with_bfp16 causal window",
    "linalg.mm": "dim_m dim_k dim_n input_dtype output_dtype vectorized b_col_maj c_col_maj use_chess emulate_bf16_mmul_with_bfp16",
    "linalg.mv": "dim_m dim_k input_dtype output_dtype vectorized use_chess vec_size output_rows",
    "norm.layer_norm": "tile_size cols",
    "norm.rms_norm_eps": "tile_size cols",
    "zero": "tile_size dtype vectorized use_chess",
}

#: What no factory that was seen takes: attention's object is asked for by which exp2 it computes and what it keeps its state in, which
#: tells two objects apart that are two. An mlir-aie without them refuses it (`KernelMismatch`).
UNSEEN = {"linalg.mha": {"accurate_exp2", "state_dtype"}}


@cache
def asked() -> dict[str, set[str]]:
    """By factory all keywords that kernels of the catalog's arrays give it."""
    found: dict[str, set[str]] = {}
    for cls, dev in PLACES:
        for _, case, _ in cases([cls]):
            try:
                kernels = build(cls(**case.fields).resolved(device(dev)), dev).kernels
            except IronError:
                continue
            for kernel in kernels.values():
                if kernel.data.factory:
                    found.setdefault(kernel.data.factory, set()).update(name for name, _ in kernel.data.keywords)
    return found


def test_every_factory_that_is_asked_for_is_one_of_mlir_aies():
    """And none stands in the table for nothing."""
    assert asked().keys() == PUBLISHED.keys()


@pytest.mark.parametrize("factory", PUBLISHED)
def test_a_factory_takes_the_keywords_it_is_given(factory):
    assert asked()[factory] - set(PUBLISHED[factory].split()) == UNSEEN.get(factory, set())
