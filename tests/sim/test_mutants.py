"""A design that is a little wrong is caught: by the specification, by a limit, or by the simulator; or it moves the same data."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from iron_core import In, Kernel, KernelContract, Operator, Out, PackedArray, Param, Pattern, bfloat16
from iron_core.array import ObjectFifo, Worker, range_
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.words import number
from iron_core.declare.chained import Chained, place, prefold
from iron_core.declare.link import Link
from iron_core.devices import device
from iron_core.errors import IronError
from iron_ops_aie import (
    AXPY,
    GELU,
    GEMM,
    GEMV,
    MHA,
    CausalConv1d,
    Clamp,
    CombineExperts,
    Copy,
    DeltaGates,
    DepthwiseConv1d,
    Dequant,
    ElementwiseAdd,
    ElementwiseMax,
    ElementwiseMul,
    Emit,
    GatedDeltaChunk,
    GatedDeltaStep,
    GatedExperts,
    GatherWords,
    L2Norm,
    LayerNorm,
    LeakyReLU,
    Limbs,
    Log,
    Magnitude,
    Merge,
    PatchPositions,
    Quantize,
    QuantizeRows,
    ReLU,
    Repeat,
    Resample,
    ResampleTaps,
    RMSNorm,
    RoPE,
    Route,
    RowwiseAdd,
    RowwiseMul,
    Sample,
    Scale,
    Sigmoid,
    SiLU,
    SoftCap,
    Softmax,
    Softplus,
    Tanh,
    Transpose,
)
from iron_ops_aie.products.int4_tiles import int4_tiles
from iron_ops_flm import GEMM as FLMGEMM
from iron_ops_flm import DequantBFP
from iron_ops_flm.epilogue import Epilogue
from iron_sim.machine import Machine
from iron_sim.run import regions_of
from tests.catalog import ARRAYS
from tests.sim import mutants

DEV = device("npu2")
#: Of a mutator's places in one design, how many are tried.
TRIED = 4


class Neighbours(Operator):
    """y = the sum of the two lines of every pair: a core that holds two objects at a time."""

    pairs: int = Param()
    line: int = Param(default=64)
    x = In(pairs, 2, line, dtype=np.int32, tile=line)
    y = Out(pairs, line, dtype=np.int32, tile=line)

    def reference(self, x: Any) -> Any:
        return x.sum(1)

    def array(self, target: Any) -> None:
        contract = KernelContract(roles=(In, In, Out), reference=lambda a, b: a + b, elementwise=True)
        sums = Kernel.inline("sums", "void KERNEL(int*, int*, int*);", (self.x.tile,) * 3, contract)

        def core(x: Any, y: Any, sums: Any) -> None:
            for _ in range_(4):
                one, two = x.acquire(2)
                sums(one, two, y.acquire())
                x.release(2)
                y.release()

        x, y = ObjectFifo(self.x.tile, name="x", depth=3), ObjectFifo(self.y.tile, name="y")
        x.prod(tile=self.x.lane(0))
        y.cons(tile=self.y.lane(0))
        Worker(core, [x.cons(), y.prod(), sums], name="core0")


_LLAMA = dict(heads_interleaved=True, kv_interleaved=True)
_LINES = dict(size=1024, tile_size=64, num_aie_columns=2)
#: The elementwise operators besides ElementwiseAdd, with what they need besides lines.
ELEMENTWISE = {
    AXPY: dict(scalar_factor=0.75), Clamp: dict(low=-0.5, high=1.0), ElementwiseMax: {}, ElementwiseMul: {}, GELU: {}, LeakyReLU: {},
    Log: dict(offset=0.001), Quantize: dict(scale=0.01), ReLU: {}, Scale: dict(factor=0.3), SiLU: {}, Sigmoid: {},
    SoftCap: dict(cap=1.5), Tanh: {},
}  # fmt: skip
#: Designs and the calls made on each, one after another on one array: bounds that change show what is stale.
SUBJECTS = {
    "neighbours": (Neighbours(pairs=4), [{}, {}]),
    "add": (ElementwiseAdd(size=16384, num_aie_columns=4, tile_size=256), [{"valid": 3072}, {"valid": 16384}]),
    **{cls.__name__: (cls(**_LINES, **fields), [{"valid": 300}, {"valid": 1024}]) for cls, fields in ELEMENTWISE.items()},
    "quantize": (Quantize(size=1024, tile_size=64), [{}, {}]),
    "route of all rows": (Route(rows=24, experts=16, k=2, num_aie_columns=2), [{"valid": 5}, {"valid": 24}]),
    "route": (Route(rows=24, experts=16, k=4, num_aie_columns=2), [{"valid": 5}, {"valid": 24}]),
    "l2 norm": (L2Norm(rows=24, cols=64, num_aie_columns=2), [{"valid": 5}, {"valid": 24}]),
    "quantize rows": (QuantizeRows(rows=12, cols=64, num_aie_columns=2), [{}, {}]),
    "norm": (RMSNorm(rows=24, cols=64, weighted=True, num_aie_columns=2, num_channels=2), [{"valid": 5}, {"valid": 24}]),
    "rope": (
        RoPE(rows=24, cols=64, angle_rows=8, num_aie_columns=2),
        [{"valid": 9, "angles_valid": 3}, {"valid": 24, "angles_valid": 8}],
    ),
    "layer norm": (LayerNorm(rows=8, cols=64, weighted=True, biased=True, num_aie_columns=2), [{"valid": 3}, {"valid": 8}]),
    "row sum": (RowwiseAdd(rows=12, cols=64, num_aie_columns=2), [{"valid": 5}, {"valid": 12}]),
    "row product": (RowwiseMul(rows=12, cols=64, num_aie_columns=2, num_channels=2), [{"valid": 5}, {"valid": 12}]),
    "softmax": (
        Softmax(rows=16, cols=96, vector_size=90, num_aie_columns=2),
        [{"valid": 5, "valid_cols": 40}, {"valid": 16, "valid_cols": 90}],
    ),
    "limbs": (Limbs(rows=12, cols=32, num_aie_columns=2), [{"valid": 3}, {"valid": 12}]),
    "magnitude": (Magnitude(rows=12, cols=64, num_aie_columns=2), [{"valid": 3}, {"valid": 12}]),
    "gemv": (GEMV(M=64, K=64, num_batches=6, repeat=2, num_aie_columns=2), [{}, {}]),
    "gemv of int8": (GEMV(M=64, K=64, T=np.int8, O=np.int32, num_batches=3, num_aie_columns=2), [{}, {}]),
    "gemv of int8, scaled": (
        GEMV(M=64, K=64, T=np.int8, O=bfloat16, scale=0.37, num_aie_columns=2, tile_size_input=4, tile_size_output=8),
        [{"valid": 20}, {"valid": 64}],
    ),
    "gemv folded": (
        Chained(
            GEMV(M=64, K=64, num_batches=4, repeat=2, num_aie_columns=2),
            finish=(Link(ReLU(size=256)), Link(ElementwiseAdd(size=256))), prepare=(Link(SiLU(size=256)),),
        ),
        [{}, {}],
    ),
    "gemv placed behind a norm": (
        place(prefold(GEMV(M=64, K=64, num_batches=2, num_aie_columns=2), RMSNorm(rows=2, cols=64, weighted=True)), 300),
        [{"C_offset": 32}, {"C_offset": 172}],
    ),
    "gemm": (
        GEMM(M=192, K=128, N=128, tile_m=16, tile_n=64, tile_k=32, num_aie_columns=2),
        [{"valid": 70, "valid_k": 40}, {"valid": 192, "valid_k": 128}],
    ),
    "gemm exact": (
        GEMM(M=128, K=96, N=128, b_col_maj=True, prio_accuracy=True, tile_m=16, tile_k=32, num_aie_columns=2),
        [{"valid": 60, "valid_k": 40}, {"valid": 128, "valid_k": 96}],
    ),
    "mha prompt": (
        MHA(num_heads=3, num_KV_heads=1, seq_len=64, kv_len=128, B_q=32, num_pipelines=1, **_LLAMA),
        [{"valid": 20, "kv_valid": 50}, {"valid": 64, "kv_valid": 128}, {"valid": 40, "kv_valid": 20}],
    ),
    "mha one query": (
        MHA(num_heads=12, num_KV_heads=4, seq_len=1, kv_len=96, num_pipelines=2, **_LLAMA),
        [{"kv_valid": 33}, {"kv_valid": 96}, {"kv_valid": 0}],
    ),
    "mha biased": (
        MHA(num_heads=2, num_KV_heads=1, seq_len=32, kv_len=64, B_q=16, num_pipelines=2, pv_cores=2, biased=True, soft_cap=3.0, window=20),
        [{"valid": 20, "kv_valid": 40}, {"valid": 32, "kv_valid": 64}],
    ),
    "copy": (
        Copy(
            input_size=4096, output_size=2048, src=Pattern(0, (8, 128), (256, 1)), dst=Pattern(64, (8, 128), (128, 1)),
            num_channels=2,
        ),
        [{"in_offset": 128}, {"in_offset": 2048}],
    ),
    "transpose": (Transpose(M=96, N=48, num_batches=3, m=24, n=24, num_aie_columns=2, num_channels=2), [{}, {}]),
    "repeat": (Repeat(rows=12, cols=32, repeat=3), [{"valid": 5}, {"valid": 12}]),
    "sample": (
        Sample(vocab=24, steps=3, T=np.float32, k_max=8, cores=3, chunk=4),
        [{"row": 4, "at": 1}, {"row": 8, "at": 2}] * 8,
    ),
    "emit": (Emit(carried=3, slots=12), [{}, {}]),
    "dequant": (Dequant(rows=6, cols=512, F=int4_tiles(256), num_aie_columns=2, num_channels=2), [{"valid": 2}, {"valid": 6}]),
    "flm gemm": (
        FLMGEMM(M=512, K=512, N=320, epilogue=Epilogue.SILU, clamp=(-1.0, 1.0), num_aie_columns=2), [{"valid": 70}, {"valid": 512}],
    ),
    "dequant bfp": (DequantBFP(N=256, K=1024, num_aie_columns=2), [{}, {}]),
    "merge": (
        Merge(rows=24, audio_token=2, image_token=9, audio_at=24, vision_at=90, block=8), [{"valid": 13}, {"valid": 24}],
    ),
    "gather words": (GatherWords(rows=21, table_rows=12, row_bytes=16, feeds=2, block=7), [{}, {}]),
    "resample taps": (
        # Both ends of the output, whose weights are the largest, are chunks of the first core.
        ResampleTaps(in_size=78, out_size=156, words=64, num_aie_columns=2),
        [{"in_length": 60, "out_length": 40}, {"in_length": 78, "out_length": 156}],
    ),
    "resample": (
        Resample(height=30, width=1520, out_height=32, out_width=160, cores=2, chunks_h=8),
        [{"rows": 20, "out_rows": 16, "out_columns": 48}, {"rows": 30, "out_rows": 32, "out_columns": 160}],
    ),
    "a convolution that goes on": (
        CausalConv1d(rows=6, channels=32, num_aie_columns=2),
        [{"valid": 4, "past": 0}, {"valid": 6, "past": 9}],
    ),
    "a memory that is corrected": (
        GatedDeltaStep(rows=6, key_heads=1, value_heads=4, key_dim=8, value_dim=8, num_aie_columns=2),
        [{"valid": 4, "past": 0}, {"valid": 6, "past": 9}],
    ),
    "gates of a memory": (DeltaGates(rows=513, heads=4), [{}, {}]),
    "softplus": (Softplus(size=512, tile_size=64, num_aie_columns=2), [{}, {}]),
    "a memory of chunks": (
        GatedDeltaChunk(rows=4, key_heads=2, value_heads=2, key_dim=8, value_dim=16, num_aie_columns=1),
        [{"valid": 3, "past": 2}, {"valid": 4, "past": 0}],
    ),
    "experts gated": (
        GatedExperts(rows=4, experts=2, hidden=16, inner=8, k=2, num_aie_columns=2),
        [{"valid": 3}, {"valid": 4}],
    ),
    "experts added": (
        CombineExperts(rows=4, experts=2, hidden=8, inner=16, k=2, num_aie_columns=2),
        [{"valid": 3}, {"valid": 4}],
    ),
    "experts and a shared one": (
        CombineExperts(rows=4, experts=2, hidden=24, inner=8, k=2, num_aie_columns=2, shares=True, gates=True),
        [{"valid": 3}, {"valid": 4}],
    ),
    "convolution": (DepthwiseConv1d(rows=18, channels=32, num_aie_columns=3), [{}, {}]),
    "patch positions": (
        PatchPositions(rows=6, columns=9, places=60, block=20),
        [{"valid_rows": 3, "valid_columns": 6}, {"valid_rows": 6, "valid_columns": 9}],
    ),
    "gather": (Copy(input_size=64 * 32, gather=True, table_rows=64, rows=24), [{}, {}]),
}  # fmt: skip


def tensors_of(op, members, rng):
    """Random inputs. What lies past a call's bounds is no number: nothing may depend on it."""
    tensors = op.test.draw(op, rng) if op.test else {"x": rng.integers(-99, 99, op.shape("x"), np.int32)}
    short = op.bounded(**op.limits(members))
    for name, tensor in tensors.items():
        if not isinstance(tensor, PackedArray) and np.asarray(tensor).dtype.kind not in "iu":
            kept = tuple(slice(n) for n in short.shape(name))
            whole = np.full_like(tensor, np.nan)
            whole[kept] = tensor[kept]
            tensors[name] = whole
    for name in op.partial:
        tensors[name] = np.zeros(op.shape(name), op.format(name).dtype)
    return tensors


def run(design, kernels, op, calls):
    """Every call's outputs and what of them nobody wrote, on one machine."""
    rng = np.random.default_rng(0)
    machine = Machine(design.array, kernels)
    found = []
    for members in calls:
        regions = regions_of(design, tensors_of(op, members, rng))
        numbers = {word.name: number(op, word, members) for word in design.sequence.words}
        machine.run(design.sequence, regions, numbers)
        for operand in op.outputs:
            if operand.name not in op.present:
                continue
            region = regions[operand.name]
            found.append((region.data.tobytes(), region.mask.tobytes()))
    return found


@pytest.fixture(scope="module")
def originals():
    made = {}
    for name, (op, calls) in SUBJECTS.items():
        op = op.resolved(DEV)
        design, kernels = build(op, DEV, calls[0])
        fit(design)
        made[name] = (op, calls, design, kernels, run(design, kernels, op, calls))
    return made


def caught(design, kernels, op, calls, original):
    """The error a mutant raises, or "other data", or None where it does the same."""
    try:
        fit(design)
        found = run(design, kernels, op, calls)
    except IronError as error:
        return f"{type(error).__name__}: {error}"
    return "other data" if found != original else None


#: Mutants that move the same data: subject, mutator, what `difference` says of them; and why.
_AGAIN = "it overwrites with what does not depend on what was there"
_SUM = "a + b is b + a"
_PRODUCT = "a * b is b * a, and a + b is b + a"
_LOOK = "the first pass says where to look for the largest; of what it may miss here nothing is drawn"
_THROUGH = "its data was through by then, and of what it shares with later ones there was enough"
_FIRST = "the largest weights, and so the precision, are those of the first core's chunks"
SAME = {
    ("neighbours", "arguments_swapped", ""): _SUM,
    ("add", "arguments_swapped", ""): _SUM,
    ("ElementwiseMax", "arguments_swapped", ""): "the larger of a and b is the larger of b and a",
    ("ElementwiseMul", "arguments_swapped", ""): "a * b is b * a",
    ("norm", "arguments_swapped", "'a3' -> 'a1'"): _PRODUCT,
    ("layer norm", "arguments_swapped", "'a3' -> 'a1'"): _PRODUCT,
    ("gemv folded", "arguments_swapped", "finish"): _SUM,
    ("row sum", "arguments_swapped", ""): _SUM,
    ("row product", "arguments_swapped", ""): _PRODUCT,
    ("quantize", "call_twice", "-> Call(kernel='settle_"): _AGAIN,
    ("quantize", "call_twice", "-> Call(kernel='largest_"): "the largest is the largest however often one looks",
    ("quantize", "rounding_not_set", ""): "its kernels round to whole numbers themselves, and store no bfloat16",
    ("Quantize", "rounding_not_set", ""): "its kernel rounds to whole numbers itself, and stores no bfloat16",
    ("quantize rows", "call_twice", ""): _AGAIN,
    ("quantize rows", "rounding_not_set", ""): "its kernel rounds to whole numbers itself, and stores no bfloat16",
    ("gemv of int8", "call_twice", "-> Call(kernel='mv_"): _AGAIN,
    ("gemv of int8", "call_twice", "-> Call(kernel='zero_"): _AGAIN,
    ("gemv of int8", "rounding_not_set", ""): "sums are whole numbers",
    ("gemv of int8, scaled", "call_twice", "-> Call(kernel='mv_"): _AGAIN,
    ("gemv of int8, scaled", "word_off_by_one", "value: 1052602532 ->"): "the next float32 beside the scale: bfloat16 is coarser",
    ("softmax", "call_twice", ""): _AGAIN,
    ("route", "rounding_not_set", ""): "float32 from float32: nothing is rounded to bfloat16",
    ("route of all rows", "rounding_not_set", ""): "float32 from float32: nothing is rounded to bfloat16",
    ("magnitude", "rounding_not_set", ""): "float32 from float32: nothing is rounded to bfloat16",
    ("gemv", "call_twice", "-> Call(kernel='mv_"): _AGAIN,
    ("gemv folded", "call_twice", "-> Call(kernel='mv_"): _AGAIN,
    ("gemv placed behind a norm", "call_twice", "-> Call(kernel='mv_"): _AGAIN,
    ("gemv placed behind a norm", "arguments_swapped", ""): "a * b is b * a",
    ("gemm", "call_twice", "_tail_"): _AGAIN,
    ("gemm exact", "call_twice", "_tail_"): _AGAIN,
    ("mha prompt", "call_twice", "-> Call(kernel='clear_rows_"): _AGAIN,
    ("mha prompt", "call_twice", "-> Call(kernel='hide_"): _AGAIN,
    ("mha biased", "call_twice", "-> Call(kernel='clear_rows_"): _AGAIN,
    ("mha biased", "call_twice", "-> Call(kernel='hide_"): _AGAIN,
    ("mha one query", "call_twice", "-> Call(kernel='clear_rows_"): _AGAIN,
    ("mha one query", "call_twice", "-> Call(kernel='hide_"): _AGAIN,
    ("mha one query", "other_word_read", "1 -> 2"): "one round, one query: the words are equal",
    ("mha one query", "offset_a_word_more", ".descriptors[0].offset"): "of the 16th row of a block of 5 x 3 heads nothing comes out",
    ("mha one query", "operands_confused", "'Q' -> "): "of the 16th row of a block of 5 x 3 heads nothing comes out",
    ("merge", "rounding_not_set", ""): "rows are whole numbers",
    ("dequant bfp", "rounding_not_set", ""): "its kernel rounds by itself",
    ("gather words", "rounding_not_set", ""): "addresses are whole numbers",
    ("sample", "call_dropped", "sample_count_"): _LOOK,
    ("sample", "call_twice", "-> Call(kernel='sample_settle_"): _AGAIN,
    ("sample", "parts_crossed", ""): "ids come with their keys; the order of the cores decides between equal logits alone",
    **{
        ("sample", mutator, f".sequence.steps[{step}].descriptors[0].offset"): _LOOK
        for mutator in ("offset_one_more", "offset_one_less", "offset_a_word_more")
        for step in (3, 4, 5)
    },
    **{
        ("resample taps", mutator, f"cores[{core}].program[9]"): _FIRST
        for mutator in ("call_dropped", "arguments_swapped", "trips_one_fewer")
        for core in (1, 2, 3)
    },
    ("resample taps", "trips_one_more", ".program[9].stop"): "that chunk has no outputs",
    ("resample taps", "call_twice", "Call(kernel='taps_"): "it takes the larger of the same again",
    ("resample taps", "other_word_read", ".program[14]"): "of the largest weight so far only the lower half differs",
    ("resample taps", "rounding_not_set", ""): "its kernels make whole numbers",
    ("resample taps", "word_off_by_one", ".value: 16 -> 17"): "what fits 16 chunks fits 17",
    ("patch positions", "rounding_not_set", ""): "its kernel makes whole numbers",
    ("resample", "rounding_not_set", ""): "its kernels round by themselves",
    ("resample", "call_twice", "Call(kernel='resample_down_"): _AGAIN,
    ("resample", "freed_instead_of_awaited", "task=3"): "behind the picture there are patches to give",
    ("flm gemm", "trips_one_fewer", ".array.cores[0].program[9].body[1].stop"): "no column has more tiles than the first",
    ("a memory that is corrected", "call_twice", "-> Call(kernel='delta_put_"): _AGAIN,
    ("a memory of chunks", "call_twice", "-> Call(kernel='delta_put_"): _AGAIN,
    ("experts gated", "call_twice", "-> Call(kernel='experts_keep_"): _AGAIN,
    ("experts gated", "call_twice", "-> Call(kernel='experts_pick_"): _AGAIN,
    ("experts added", "call_twice", "-> Call(kernel='experts_keep_"): _AGAIN,
    ("experts added", "call_twice", "-> Call(kernel='experts_pick_"): _AGAIN,
    ("experts and a shared one", "call_twice", "-> Call(kernel='experts_keep_"): _AGAIN,
    ("experts and a shared one", "call_twice", "-> Call(kernel='experts_pick_"): _AGAIN,
    ("experts and a shared one", "lanes_crossed", "'ids0' -> 'ids1'"): "all cores get the same ids",
    ("experts gated", "lanes_crossed", "'ids0' -> 'ids1'"): "all cores get the same ids",
    ("experts added", "lanes_crossed", "'ids0' -> 'ids1'"): "all cores get the same ids",
    ("convolution", "acquire_more", "program[5].count"): "it waits for rows that the next acquire would wait for, and there is room",
    ("convolution", "arguments_swapped", "cores[0].program[7].args[0]"): "either weight meets a row of zeros",
    ("convolution", "arguments_swapped", "cores[0].program[11].args[0]"): "either weight meets a row of zeros",
    ("gemv", "freed_instead_of_awaited", ""): _THROUGH,
    ("gemv folded", "freed_instead_of_awaited", ""): _THROUGH,
    ("gemv placed behind a norm", "freed_instead_of_awaited", ""): _THROUGH,
    ("mha one query", "freed_instead_of_awaited", ""): _THROUGH,
    ("a memory that is corrected", "freed_instead_of_awaited", ""): _THROUGH,
    ("gates of a memory", "freed_instead_of_awaited", ""): _THROUGH,
    ("gates of a memory", "rounding_not_set", ""): "its kernel stores float32: nothing is rounded to bfloat16",
    ("a memory of chunks", "freed_instead_of_awaited", ""): _THROUGH,
}


def known(name, mutator, difference):
    """Is it one of those?"""
    return any(same[:2] == (name, mutator) and same[2] in difference for same in SAME)


@pytest.mark.slow
@pytest.mark.parametrize("mutator", mutants.MUTATORS, ids=lambda m: m.__name__)
def test_mutants_are_caught(originals, mutator):
    """Every mutator has a place in some design. A few of its places in each are tried."""
    survivors, tried = [], 0
    for name, (op, calls, design, kernels, original) in originals.items():
        made = mutator(design)
        for mutant in random.Random(name).sample(made, min(TRIED, len(made))):
            tried += 1
            if caught(mutant, kernels, op, calls, original) is None:
                difference = mutants.difference(design, mutant)
                if not known(name, mutator.__name__, difference):
                    survivors.append(f"{name}: {difference}")
    assert tried, "no design has a place for it"
    assert not survivors, "\n".join(["neither caught nor known to move the same data:", *survivors])


def test_there_are_enough_of_them(originals):
    """At least sixty that are tried."""
    assert sum(min(TRIED, len(m(design))) for m in mutants.MUTATORS for _, _, design, _, _ in originals.values()) >= 60


def test_every_operator_has_mutants_that_are_caught(originals):
    """Two kinds at least of whatever operator has an array."""
    kinds = dict.fromkeys(ARRAYS, 0)
    for op, calls, design, kernels, original in originals.values():
        first = (next(iter(mutator(design)), None) for mutator in mutants.MUTATORS)
        told = (one for one in first if one is not None and caught(one, kernels, op, calls, original))
        kinds[type(op.base)] = max(kinds.get(type(op.base), 0), len(list(itertools.islice(told, 2))))
    assert {cls.__name__: kinds[cls] for cls in ARRAYS if kinds[cls] < 2} == {}
