"""Kernels called directly: every instantiation the tests use, compiled once per session, one source per header."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest

from iron_core.declare.formats import (
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q4NX,
    Q4NX_Q8,
    Q4NX_SIGNED,
    Q4NX_ZERO,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    BlockQuant,
    Format,
    bfloat16,
    grouped,
)
from iron_host import build, compiler
from iron_host.slots import Filled, Slots
from iron_host.view import View, view_of
from tests.layouts import BFP16EBS8, EVERY, GPTQ, INT8_CHANNEL, INT8_TENSOR

from . import emulated

#: What blocks.h multiplies: GGUF's blocks, FastFlowLM's chunks, blocks of another make, and groups.
PAIRS = BlockQuant("pairs", bits=4, group=32, scale=bfloat16, minimum=True, order="pairs")
#: Longer groups, and scales of other dtypes.
GROUPED = (grouped(4, 64), grouped(4, 128, zeros=True), grouped(4, 32, np.float32, zeros=True), grouped(8, 64, bfloat16, zeros=True))
BLOCKS = (Q4_0, Q4_1, Q8_0, Q4NX, Q4NX_SIGNED, Q4NX_ZERO, Q4NX_Q8, PAIRS, *GROUPED)
#: Formats that blocks.h multiplies, by the name of their struct.
FORMATS = {view_of(format).name: format for format in BLOCKS}  # type: ignore[union-attr]
FLOATS = ("float", "bf16", "f16")
#: What superblocks.h reads, by the name of its struct.
SUPER = {format.name.upper(): format for format in (Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4)}
#: Formats that neither multiplies, as packed.h reads them.
VIEWS: dict[Format, View] = {format: view_of(format) for format in EVERY if format not in (*BLOCKS, *SUPER.values())}  # type: ignore[misc]
PACKED_PRODUCTS = ((INT8_CHANNEL, "float"), (GPTQ, "float"), (INT8_TENSOR, "float"), (BFP16EBS8, "bf16"))
#: Matrices that ids pick: how their rows are read and what they multiply; and formats whose tiles are.
PICKED_BLOCKS = ("Q4_0", "Q4_1", "Q8_0")
PICKED_ROWS = (
    *(("DenseRow<float>", "float"), ("DenseRow<bf16>", "float"), ("DenseRow<bf16>", "bf16")),
    *(("BlockRow<Q4_1>", "float"), (f"PackedRow<{VIEWS[INT8_CHANNEL].name}>", "float")),
)
#: Rows, weights in panels, and what comes out.
PANELS = (("float", "float", "float"), ("bf16", "bf16", "bf16"), ("float", "bf16", "float"), ("bf16", "f16", "float"))
#: What is normed, and its weight.
NORMED = (("float", "float"), ("bf16", "bf16"), ("bf16", "float"))
#: Elementwise operations.
DELTAS = ("gated_delta_step", "gated_delta_step_naive", "gated_delta_chunk")
UNARIES = ("GELU", "GELUExact", "LeakyReLU", "ReLU", "Scale", "SiLU", "Sigmoid", "SoftCap", "Softplus", "Tanh")
BINARIES = ("AXPY", "Add", "Max", "Mul")
DTYPES = {"float": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
DTYPES |= {f"{name}_t": np.dtype(name) for name in ("int8", "uint8", "int32")}
#: What a group of rounded activations leaves: its scale, scale times sum, sum, and the sum of its first half.
SCALE = np.dtype([("d", np.float32), ("s", np.float32), ("sum", np.int32), ("first", np.int32)])

KERNELS: dict[str, list[str]] = {
    "matmul.h": [
        f"{name}<{x}, {w}, {o}>"
        for name in ("matmul", "matmul_naive")
        for x, w, o in (("float", "float", "float"), ("bf16", "bf16", "bf16"), ("float", "bf16", "float"), ("float", "f16", "bf16"))
    ],
    "panels.h": [
        *(f"{name}<{x}, {w}, {o}>" for name in ("panel_product", "panel_product_naive") for x, w, o in PANELS),
        *(f"pack_panels<{w}>" for w in FLOATS),
    ],
    "flm.h": [
        "flm_gemm",
        *(f"flm_gemm_packed<flm::{right}>" for right in ("Dense", "Blocks")),
        *(f"flm_gemm_naive<flm::{right}>" for right in ("Stored", "DenseAt", "BlocksAt")),
    ],
    "integers.h": [
        f"{name}<{x}, int8_t, {o}>"
        for name in ("matmul_integers", "matmul_integers_naive")
        for x, o in (("int8_t", "int32_t"), ("uint8_t", "int32_t"), ("int8_t", "float"), ("int8_t", "bf16"))
    ],
    "rounded.h": [f"quantize_rows<{x}>" for x in ("float", "bf16")],
    "blocks.h": [
        *(f"block_matmul<{f}, {o}>" for f in FORMATS for o in ("float", "bf16")),
        *(f"block_matmul_naive<{f}, float>" for f in FORMATS),
        *(f"block_exact<{f}, {x}, {x}>" for f in FORMATS for x in ("float", "bf16")),
        *(f"{kernel}<{f}>" for f in FORMATS for kernel in ("block_integers", "pack_blocks")),
        *(f"dequantize<{f}, {t}>" for f in FORMATS for t in FLOATS),
    ],
    "superblocks.h": [
        *(f"block_matmul{twin}<{f}, float>" for f in SUPER for twin in ("", "_naive")),
        *(f"block_exact<{f}, float, float>" for f in SUPER),
        *(f"dequantize<{f}, float>" for f in SUPER),
        *(f"pack_blocks<{f}>" for f in SUPER),
        *(f"picked_blocks{twin}<{f}, float, true>" for f in SUPER for twin in ("", "_naive")),
        *(f"combined_blocks{twin}<{f}, float, float>" for f in SUPER for twin in ("", "_naive")),
    ],
    "packed.h": [
        *(f"packed_product<{VIEWS[format].name}, {x}, {x}>" for format, x in PACKED_PRODUCTS),
        *(f"packed_dequantize<{view.name}, float>" for view in VIEWS.values()),
    ],
    "attention.h": [
        *(
            f"{name}<{t}, {c}>"
            for name in ("attention", "attention_naive")
            for t, c in (("float", "f16"), ("float", "float"), ("bf16", "bf16"))
        ),
        *(f"attention_join<{t}>" for t in ("float", "bf16")),
    ],
    "paged.h": [
        *(
            f"{name}<{t}, {c}>"
            for name in ("paged_attention", "paged_attention_naive")
            for t, c in (("float", "f16"), ("float", "float"), ("bf16", "bf16"))
        ),
        *(f"paged_join<{t}>" for t in ("float", "bf16")),
    ],
    "whole.h": [
        f"{name}<{t}, {c}>"
        for name in ("whole_keys", "whole_attention", "whole_attention_naive")
        for t, c in (("float", "f16"), ("float", "float"), ("bf16", "bf16"))
    ],
    "rows.h": [
        *(f"{norm}<{t}, {w}>" for norm in ("rms_norm", "layer_norm") for t, w in NORMED),
        *(f"{name}<{t}>" for name in ("softmax", "l2_norm") for t in FLOATS),
        *(f"rope<{t}, float>" for t in FLOATS),
        *("limbs<float, bf16>", "magnitude<float>"),
    ],
    "conv.h": [f"{name}<{t}, {w}>" for name in ("depthwise_conv1d", "causal_conv1d") for t, w in NORMED],
    "delta.h": [f"{name}<{t}>" for name in (*DELTAS, "delta_gates") for t in FLOATS],
    "elementwise.h": [
        *(f"binary<op::{op}, {t}>" for op in BINARIES for t in FLOATS),
        *(f"unary<op::{op}, {t}>" for op in UNARIES for t in FLOATS),
        *(f"{name}<{t}>" for name in ("clamp", "log_sum", "quantize", "quantize_fitted", "quantize_each") for t in FLOATS),
        *(f"rowwise<op::{op}, {t}>" for op in ("Add", "Mul") for t in FLOATS),
        "exponentials",
    ],
    "move.h": [
        *(f"copy<{s}, {d}>" for s in FLOATS for d in FLOATS if s != d),
        *(f"{name}<{t}>" for name in ("repeat", "transpose") for t in ("uint8_t", "uint16_t", "uint32_t")),
        *(f"copy<{t}, {t}>" for t in ("uint8_t", "uint16_t", "uint32_t")),
        "merge<int32_t>",
        *(f"gather<{s}, {d}>" for s, d in (("uint8_t", "uint8_t"), ("uint32_t", "uint32_t"), ("float", "f16"))),
        *(f"scatter_rows<{s}, {d}>" for s, d in (("uint8_t", "uint8_t"), ("uint32_t", "uint32_t"), ("float", "f16"))),
    ],
    "sample.h": ["sample<float>", "sample<bf16>"],
    "route.h": [f"route<{t}>" for t in FLOATS],
    "experts.h": [
        *(f"picked_rows{twin}<{p}, {x}, {x}, {g}>" for p, x in PICKED_ROWS for twin in ("", "_naive") for g in ("false", "true")),
        *(f"combined_rows{twin}<{p}, {x}, {x}>" for p, x in PICKED_ROWS for twin in ("", "_naive")),
        *(f"picked_blocks{twin}<{f}, float, {g}>" for f in PICKED_BLOCKS for twin in ("", "_naive") for g in ("false", "true")),
        *(f"combined_blocks{twin}<{f}, float, float>" for f in PICKED_BLOCKS for twin in ("", "_naive")),
    ],
    "images.h": ["patch_positions", "resample_taps", *(f"resample<{t}>" for t in FLOATS)],
}

#: exp() as the kernels have it: numbers through a whole vector, one at a time, and as exp_below() has those that are not above 0.
EXPONENTIALS = Slots("Exponentials", (), {"x": "const float", **dict.fromkeys(("vectors", "alone", "below"), "float")}, ("size",))
EXTRA = {
    "superblocks.h": '#include "experts.h"\n',
    "packed.h": "".join(view.source for view in VIEWS.values()),
    "blocks.h": "".join(view_of(format).source for format in BLOCKS),  # type: ignore[union-attr]
    "experts.h": "".join(view_of(format).source for format in (Q4_0, Q4_1, Q8_0, INT8_CHANNEL)),  # type: ignore[union-attr]
    "elementwise.h": EXPONENTIALS.cpp
    + """
static void exponentials(const Exponentials& g, int32_t tid, int32_t nt) {
  for (int64_t i = 0; i < g.size; i += 8) iron::store8(g.vectors + i, iron::exp8(iron::load8(g.x + i)));
  for (int64_t i = 0; i < g.size; i++) g.alone[i] = iron::exp8(iron::splat(g.x[i]))[0];
  for (int64_t i = 0; i < g.size; i += iron::WIDE) iron::storew(g.below + i, iron::exp_below(iron::loadw(g.x + i)));
}
"""
}


class Args(ctypes.Structure):
    """`iron_args` of iron_host.h."""

    _fields_ = (
        ("p", ctypes.c_void_p * 8),
        ("n", ctypes.c_int64 * 24),
        ("f", ctypes.c_double * 4),
        ("scratch", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
    )


class Row(ctypes.Structure):
    """`iron_row`."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("plane", "index", "scale", "bias", "divisor", "down", "mul", "add", "shift"))


class Binding(ctypes.Structure):
    """`iron_binding`."""

    _fields_ = (("slot", ctypes.c_int64), ("unit", ctypes.c_int64), ("row", Row))


class Step(ctypes.Structure):
    """`iron_step`."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("args", Args),
        ("base", ctypes.c_void_p * 8),
        *(
            (name, ctypes.c_int64)
            for name in ("first_binding", "n_bindings", "scratch_bytes", "shared_bytes", "threads", "together", "work", "parts")
        ),
    )


class Carry(ctypes.Structure):
    """`iron_carry`."""

    _fields_ = (
        ("value", ctypes.c_int64),
        ("source", ctypes.c_int64),
        ("row", Row),
        ("pointer", ctypes.c_void_p),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
    )


class Run(ctypes.Structure):
    """`iron_run`."""

    _fields_ = (
        ("steps", ctypes.POINTER(Step)),
        ("n_steps", ctypes.c_int64),
        ("bindings", ctypes.POINTER(Binding)),
        ("values", ctypes.c_void_p),
        ("n_values", ctypes.c_int64),
        ("carries", ctypes.POINTER(Carry)),
        ("n_carries", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("passes", "each", "pause_ns", "made", "step", "began", "called", "row", "begun")),
    )


def aligned(nbytes: int) -> np.ndarray:
    """Zeros on a 64-byte border."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class Kernels:
    """Call a kernel as `threads` threads would, one after the other, each with scratch of its own."""

    def __init__(self, libraries: dict[str, Future[dict[str, Any]]]) -> None:
        self.libraries = libraries  # by template: the functions of the source that has it

    def __call__(
        self, template: str, slots: Filled, *, scratch: int = 0, shared: np.ndarray | None = None, threads: int = 1
    ) -> None:
        """slots: a table of `iron_host.kernels` filled with arrays and numbers."""
        args = Args()
        args.n[: len(slots.ints)] = list(map(int, slots.ints))
        args.f[: len(slots.floats)] = list(slots.floats)
        self.libraries[template].result()[template](args, slots.pointers, shared, scratch, threads)


def called(
    function: Any, args: Args, pointers: Sequence[np.ndarray | None], shared: np.ndarray | None, scratch: int, threads: int
) -> None:
    """Call a function of a library. args: `iron_args` with its numbers."""
    for i, array in enumerate(pointers):
        args.p[i] = None if array is None else array.ctypes.data
    args.shared = None if shared is None else shared.ctypes.data
    for tid in range(threads):
        own = aligned(scratch)
        args.scratch = own.ctypes.data
        function(ctypes.byref(args), tid, threads)


def builds() -> list[Any]:
    """What kernels are built for: this processor, older ones whose code it runs too, and others that qemu runs the code of. Each
    takes half a minute to compile."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ["native"]
    older = ("x86-64-v3", "x86-64") if compiler.vector_width() == "AVX-512" else ("x86-64",)
    here = pytest.mark.skipif(bool(emulated.MISSING), reason=f"not here: {' and '.join(emulated.MISSING)}")
    other = (pytest.param(processor, marks=[pytest.mark.aarch64, here]) for processor in emulated.PROCESSORS)
    return ["native", *(pytest.param(processor, marks=pytest.mark.slow) for processor in older), *other]


def built_for(processor: str) -> compiler.Compiler:
    """The compiler of this machine, making code for `processor`; for another kind of processor, the one that does."""
    if processor in emulated.PROCESSORS:
        return emulated.compiler_for(processor)
    found = compiler.find()
    name = processor.replace("-", "_") if found.name.startswith("zig") else processor
    return attrs.evolve(found, flags=tuple(f"-march={name}" if f == compiler.NATIVE else f for f in found.flags))


def functions(header: str, with_: compiler.Compiler) -> dict[str, Any]:
    """Every kernel of a header by its template, compiled as one source: what is called as `called`, but for the function."""
    symbols = {template: f"k{i}" for i, template in enumerate(KERNELS[header])}
    lines = [f'#include "{header}"\n', EXTRA.get(header, "")]
    for template, symbol in symbols.items():
        lines.append(build.Unit(header, template, symbol).function)
    if emulated.makes(with_):
        lines.append(emulated.main([*symbols.values()]))
        program = emulated.Program(build.compiled("".join(lines), header, with_))
        return {template: partial(program, i) for i, template in enumerate(symbols)}
    library = ctypes.CDLL(str(build.compiled("".join(lines), header, with_)))
    found = {template: getattr(library, symbol) for template, symbol in symbols.items()}
    for function in found.values():
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32), None
    return {template: partial(called, function) for template, function in found.items()}


@pytest.fixture(scope="session", params=builds())
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    """Every kernel of `KERNELS` by its template; what holds, holds for every processor."""
    with_ = built_for(request.param)

    with ThreadPoolExecutor(2) as workers:
        made = {header: workers.submit(functions, header, with_) for header in KERNELS}
        yield Kernels({template: made[header] for header, templates in KERNELS.items() for template in templates})
        workers.shutdown(cancel_futures=True)  # what no test asked for


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same every time."""
    return np.random.default_rng(11)
