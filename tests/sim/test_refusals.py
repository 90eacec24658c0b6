"""Where no array takes an operator, the message names a value that one takes; and refusals are counted by their rule."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from iron_core import Pattern, require
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.cases import cases
from iron_core.declare.formats import bfloat16
from iron_core.declare.testing import Case
from iron_core.devices import device
from iron_core.errors import IronError
from iron_ops_aie import (
    GEMM,
    GEMV,
    MHA,
    CausalConv1d,
    CombineExperts,
    Copy,
    DeltaGates,
    DepthwiseConv1d,
    Dequant,
    ElementwiseAdd,
    GatedDeltaStep,
    GatedExperts,
    GatherWords,
    LayerNorm,
    LeakyReLU,
    Limbs,
    Merge,
    PatchPositions,
    Quantize,
    QuantizeRows,
    Repeat,
    Resample,
    ResampleTaps,
    RMSNorm,
    RoPE,
    Sample,
    SiLU,
    Softmax,
    Transpose,
)
from iron_ops_aie.products.int4_tiles import int4_tiles
from iron_sim.refusals import by_rule, rule
from tests.catalog import ARRAYS, named

DEVICES = ("npu1", "npu2")
#: Steps from what is refused to what is taken: each rule that a value still breaks is followed in its turn.
STEPS = 6
#: Operators that others' messages send to.
AMONG = {cls.__name__ for cls in ARRAYS}
F32 = np.dtype(np.float32)

#: Refused beyond the operators' own cases: every rule of an array that a field alone can break.
REFUSED: list[tuple[Any, dict[str, Any]]] = [
    (SiLU, dict(size=4096, tile_size=100)),
    (SiLU, dict(size=4096, num_channels=3)),
    (SiLU, dict(size=4104)),
    (SiLU, dict(size=36864, num_aie_columns=9)),
    (ElementwiseAdd, dict(size=36864, num_aie_columns=9, num_channels=2)),
    (LeakyReLU, dict(size=4096, alpha=1.5)),
    (Quantize, dict(size=4096, num_aie_columns=2)),
    (QuantizeRows, dict(rows=8, cols=64, num_channels=2)),
    (RMSNorm, dict(rows=8, cols=1 << 16)),
    (RMSNorm, dict(rows=8, cols=40)),
    (RMSNorm, dict(rows=8, cols=64, num_channels=3)),
    (RMSNorm, dict(rows=36, cols=64, num_aie_columns=9)),
    (RMSNorm, dict(rows=7, cols=64, num_aie_columns=2)),
    (LayerNorm, dict(rows=4, cols=64, weighted=True, biased=True, epsilon=0.0)),
    (Softmax, dict(rows=16, cols=48)),
    (Limbs, dict(rows=4, cols=1 << 15)),
    (RoPE, dict(rows=4, cols=48, angle_rows=4)),
    (RoPE, dict(rows=4, cols=1 << 14, angle_rows=4)),
    (RoPE, dict(rows=9, cols=64, angle_rows=9, num_aie_columns=9)),
    (RoPE, dict(rows=9, cols=64, angle_rows=9, num_aie_columns=2)),
    (GEMV, dict(M=64, K=64, num_aie_columns=9)),
    (GEMV, dict(M=64, K=40)),
    (GEMV, dict(M=64, K=8)),
    (GEMV, dict(M=64, K=96, kernel_vector_size=64)),
    (GEMV, dict(M=64, K=64, num_channels=3)),
    (GEMV, dict(M=64, K=64, tile_size_input=3, tile_size_output=4)),
    (GEMV, dict(M=65, K=64)),
    (GEMV, dict(M=1, K=64)),
    (GEMV, dict(M=9, K=64, O=F32, tile_size_input=2)),
    (GEMV, dict(M=64, K=64, O=np.float16)),
    (GEMV, dict(M=64, K=64, T=np.int8)),
    (GEMV, dict(M=64, K=64, T=np.int8, O=np.float32, rows_scaled=True)),
    (GEMM, dict(M=64, K=64, N=64, num_aie_columns=3)),
    (GEMM, dict(M=64, K=64, N=64, tile_m=12)),
    (GEMM, dict(M=64, K=64, N=64, T=np.int8, O=np.float32, rows_scaled=True)),
    (GEMM, dict(M=64, K=64, N=64, tile_k=12)),
    (GEMM, dict(M=64, K=64, N=64, tile_n=12)),
    (GEMM, dict(M=96, K=64, N=64, tile_m=32)),
    (GEMM, dict(M=64, K=64, N=100)),
    (GEMM, dict(M=64, K=65, N=64)),
    (GEMM, dict(M=64, K=64, N=64, O=F32, prio_accuracy=True)),
    (GEMM, dict(M=64, K=64, N=64, emulate_bf16_mmul_with_bfp16=True, T=np.int8, O=np.int32)),
    (MHA, dict(num_heads=2, num_KV_heads=2, seq_len=64, kv_len=64, d=60)),
    (MHA, dict(num_heads=2, num_KV_heads=2, seq_len=64, kv_len=64, B_q=48)),
    (MHA, dict(num_heads=2, num_KV_heads=2, seq_len=65, kv_len=128)),
    (Dequant, dict(rows=4, cols=512, F=int4_tiles(256, 8))),
    (Dequant, dict(rows=4, cols=512, F=int4_tiles(64, 64))),
    (Dequant, dict(rows=4, cols=512, F=int4_tiles(256), num_channels=3)),
    (Dequant, dict(rows=4, cols=512, F=int4_tiles(256), num_aie_columns=9)),
    (Dequant, dict(rows=3, cols=256, F=int4_tiles(256), num_aie_columns=2)),
    (CausalConv1d, dict(rows=20, channels=44)),
    (CausalConv1d, dict(rows=20, channels=64, num_aie_columns=3)),
    (CausalConv1d, dict(rows=20, channels=64, taps=3)),
    (CausalConv1d, dict(rows=20, channels=64, T=np.float32)),
    (CombineExperts, dict(rows=2, experts=4, hidden=1 << 16, inner=32, k=2, shares=True, gates=True)),
    (CombineExperts, dict(rows=2, experts=4, hidden=33, inner=32, k=2, shares=True)),
    (CombineExperts, dict(rows=2, experts=4, hidden=32, inner=32, k=2, T=F32)),
    (DeltaGates, dict(rows=2, heads=5)),
    (DeltaGates, dict(rows=2, heads=1030)),
    (DeltaGates, dict(rows=2, heads=4, T=F32)),
    (GatedExperts, dict(rows=2, experts=4, hidden=33, inner=32, k=2)),
    (GatedExperts, dict(rows=2, experts=4, hidden=32, inner=31, k=2)),
    (GatedExperts, dict(rows=2, experts=4, hidden=32, inner=32, k=2, num_aie_columns=3)),
    (GatedExperts, dict(rows=2, experts=4, hidden=1 << 16, inner=32, k=2)),
    (GatedDeltaStep, dict(rows=2, key_heads=1, value_heads=2, key_dim=9, value_dim=16)),
    (GatedDeltaStep, dict(rows=2, key_heads=1, value_heads=2, key_dim=16, value_dim=15)),
    (GatedDeltaStep, dict(rows=2, key_heads=1, value_heads=2, key_dim=8192, value_dim=16)),
    (GatedDeltaStep, dict(rows=2, key_heads=1, value_heads=1025, key_dim=16, value_dim=16)),
    (GatedDeltaStep, dict(rows=2, key_heads=1, value_heads=2, key_dim=16, value_dim=16, num_aie_columns=3)),
    (GatedDeltaStep, dict(rows=2, key_heads=1, value_heads=2, key_dim=16, value_dim=16, T=F32)),
    (DepthwiseConv1d, dict(rows=20, channels=40)),
    (DepthwiseConv1d, dict(rows=3, channels=64)),
    (DepthwiseConv1d, dict(rows=20, channels=64, num_aie_columns=3)),
    (DepthwiseConv1d, dict(rows=20, channels=64, taps=3)),
    (Copy, dict(input_size=4096, num_channels=17)),
    (Copy, dict(input_size=4096, num_channels=3)),
    (Copy, dict(input_size=4096, tile_size=100)),
    (Copy, dict(input_size=68, X=bfloat16, num_channels=4)),
    (Copy, dict(input_size=4096, src=Pattern(0, (64,), (2,)), X=bfloat16)),
    (Copy, dict(input_size=64 * 32, gather=True, table_rows=64, rows=24, num_channels=7)),
    (Copy, dict(input_size=64 * 32, gather=True, table_rows=64, rows=24, tile_size=5)),
    (GatherWords, dict(rows=24, table_rows=64, row_bytes=128, block=5)),
    (Repeat, dict(rows=4, cols=64, repeat=2, tile_size=5)),
    (Transpose, dict(M=64, N=64, s=5)),
    (Transpose, dict(M=64, N=64, m=20)),
    (Transpose, dict(M=256, N=256, m=256, n=256)),
    (Transpose, dict(M=64, N=64, num_channels=3)),
    (Transpose, dict(M=64, N=64, num_aie_columns=9)),
    (Transpose, dict(M=68, N=64)),
    (Transpose, dict(M=64, N=64, m=24)),
    (Sample, dict(vocab=64, steps=2, T=np.float16)),
    (Sample, dict(vocab=640, steps=2, k_max=600)),
    (Sample, dict(vocab=63, steps=2, T=bfloat16)),
    (Sample, dict(vocab=64, steps=2, cores=5)),
    (Sample, dict(vocab=64, steps=2, cores=2, chunk=5)),
    (Merge, dict(rows=24, audio_token=3, image_token=4, audio_at=5, vision_at=9, block=5)),
    (PatchPositions, dict(rows=6, columns=9, places=60, block=7)),
    (Resample, dict(height=16, width=19, out_height=16, out_width=16, cores=4, num_aie_columns=3)),
    (Resample, dict(height=16, width=19, out_height=16, out_width=640, cores=64)),
    (Resample, dict(height=16, width=19, out_height=16, out_width=16 * 999, cores=2)),
    (Resample, dict(height=16, width=19, out_height=16, out_width=16, cores=2, patches_out=5)),
    (ResampleTaps, dict(in_size=37, out_size=48, num_aie_columns=9)),
    (ResampleTaps, dict(in_size=37, out_size=48, num_channels=3)),
    (ResampleTaps, dict(in_size=37, out_size=48, chunks=7, num_aie_columns=2)),
]  # fmt: skip


def refusal(cls: Any, fields: dict[str, Any], dev: str) -> str:
    """Why no array takes it; empty if one does."""
    try:
        fit(build(cls(**fields).resolved(device(dev)), dev).design)
    except IronError as error:
        return str(error)
    return ""


def value(text: str) -> Any:
    """A value as messages write it."""
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    if text.startswith("int4_tiles"):
        return int4_tiles(*(int(n) for n in re.findall(r"(?<!int)\d+", text)))
    try:
        return float(text) if "." in text or "e-" in text else int(text)
    except ValueError:
        return text.strip("'")


def ways_out(message: str) -> list[dict[str, Any]]:
    """What a refusal names as legal: each way as fields and their values, `a=b=1 with c=2`; a value alone is the first field's."""
    first = re.search(r"\b(\w+)=", message)
    named = re.search(r"[Ll]egal(?: (\w+))?: (?:at least )?(.*)", message)
    assert first and named, message
    field, listed = named[1] or first[1], re.split(r";|, which", named[2])[0].rstrip(".")
    found = []
    for way in re.split(r", (?:and )?(?!group=)| or | to ", listed):
        parts = [part if re.match(r"\w+=", part) else f"{field}={part}" for part in way.split(" with ")]
        found.append({name: value(given) for *names, given in (re.split(r"=(?![^(]*\))", part) for part in parts) for name in names})
    return found


def taken(cls: Any, fields: dict[str, Any], dev: str, steps: int = STEPS) -> str:
    """Empty if an array takes it, or takes it once all that is refused was given what its message names; else the last message."""
    said = refusal(cls, fields, dev)
    if not said or not steps:
        return said
    for way in ways_out(said):
        if any(given in AMONG for given in way.values()):
            continue
        where = way.pop("dev", dev)
        unknown = set(way) - set(cls.fields)
        assert not unknown, f"{said} -- no fields: {unknown}"
        last = taken(cls, fields | way, where, steps - 1)
        if last:
            return f"{said} -> {way} -> {last}"
    return ""


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(("cls", "fields"), REFUSED, ids=lambda of: Case(**of).id if isinstance(of, dict) else named(of))
def test_the_nearest_legal_value_is_accepted(cls, fields, dev):
    """What a message names as legal is taken, or broke a further rule whose message says so and is followed in its turn."""
    assert refusal(cls, fields, dev).startswith(cls.__name__)
    assert not taken(cls, fields, dev)


@pytest.mark.parametrize("dev", DEVICES)
def test_so_it_is_in_the_catalog(dev):
    """For each rule of each operator that its own cases break."""
    met = {}
    for cls, case, _ in cases(ARRAYS):
        if said := refusal(cls, case.fields, dev):
            met.setdefault((cls, rule(said)), (cls, case.fields))
    assert len(met) >= 30
    wrong = [said for cls, fields in met.values() if (said := taken(cls, fields, dev))]
    assert not wrong, "\n".join(wrong)


def test_a_value_that_is_none_is_told():
    """The walk above can fail."""

    class Strict(SiLU):
        """It names a size that it refuses."""

        def compatible(self, dev):
            require(self.size < 64, f"Strict: size={self.size} is too long. Legal: size=100.")

    assert taken(Strict, dict(size=64), "npu2").endswith("Strict: size=100 is too long. Legal: size=100.")
    assert not taken(Strict, dict(size=32), "npu2")


@pytest.mark.parametrize(
    ("said", "ways"),
    [
        ("A: size=7 is odd. Nearest legal size: 6 or 8; or give tile=.", [{"size": 6}, {"size": 8}]),
        ("A: n=3; too many. Legal: 1, 2.", [{"n": 1}, {"n": 2}]),
        ("A: T=x; no. Legal: T=W=bfloat16 with O=int32, O=int8.", [{"T": "bfloat16", "W": "bfloat16", "O": "int32"}, {"O": "int8"}]),
        ("A: F=q; no. Nearest legal: F=int4_tiles(64, group=32) with cols=64.", [{"F": int4_tiles(64, 32), "cols": 64}]),
        ("A: x=1: no. Legal: Transpose, which does.", [{"x": "Transpose"}]),
    ],
)
def test_ways_out_are_read(said, ways):
    assert ways_out(said) == ways


def test_a_rule_is_a_message_without_its_values():
    """So that what breaks one rule counts as one."""
    one = "SiLU: size=1000 is not whole lines of tile_size=32 over num_aie_columns=1, 32 in all. Nearest legal size: 992 or 1024."
    other = "ReLU: size=8 is not whole lines of tile_size=16 over num_aie_columns=4, 64 in all. Nearest legal size: 64; or give tile_size=."
    assert rule(one) == rule(other) == "size=.. is not whole lines of tile_size=.. over num_aie_columns=.., N in all."
    assert rule("A: M=16; npu1 takes 0.5. Legal: M=64.") == "M=..; DEV takes N."
    assert by_rule([one, "A: T=float32; no. Legal: T=bfloat16.", other]) == {rule(one): 2, "T=..; no.": 1}
