"""Published timings of NPUs, as data: what `iron_sim.timing.table` predicts, and what is not known of those that it cannot.

`us` is (low, high): a shape that was measured more than once is a range. sources: A mlir-air's kernel registry (Strix), C IRON's cost files
(Strix Halo, Phoenix), S IRON's seed text, T tnzr.org/xdna, E xdna-emu (Phoenix), G GitHub issues, P1 arXiv 2512.13282, P2 arXiv 2511.16041,
M mlir-aie's own pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

#: What a figure covers. step: a sequence, from its start to its end. elf: a full ELF's call, without an empty reset: IRON's cost files
#: have calls of one entry from 84 us on, which are dispatch, base and step and no more. xclbin: a kernel by itself. chain: a step of
#: a chain, with its dispatch. fill, drain: one shim task. kernel: a call of one core. peak: matrix instructions alone, on every core.
PACKAGINGS = ("step", "elf", "xclbin", "chain", "fill", "drain", "kernel", "peak")


@attrs.frozen
class Part:
    """An operator by its registered name, with its fields and the per-call members that are given; and steps folded into it behind."""

    operator: str
    fields: Mapping[str, Any]
    members: Mapping[str, int] = attrs.field(factory=dict)
    finish: tuple[Part, ...] = ()


@attrs.frozen
class Row:
    """A published figure. parts: what runs, where that is known; else `unknown` says what is not. scale: of the predicted time, where what
    runs is this much larger than what was measured."""

    name: str
    dev: str
    case: str
    us: tuple[float, float]
    source: str
    packaging: str = ""
    parts: tuple[Part, ...] = ()
    unknown: str = ""
    scale: float = 1.0


def _op(operator: str, /, _members: Mapping[str, int] | None = None, _finish: tuple[Part, ...] = (), **fields: Any) -> tuple[Part, ...]:
    return (Part(operator, fields, _members or {}, _finish),)


def _flops(m: int, k: int, n: int, *tflops: float) -> tuple[float, float]:
    found = sorted(2 * m * k * n / rate * 1e-6 for rate in tflops)
    return found[0], found[-1]


def _one(us: float) -> tuple[float, float]:
    return us, us


def _wide(m: int, k: int, n: int) -> tuple[Part, ...]:
    """mlir-air's product: 8 x 4 cores with 64 x 32 x 128, M over the eight; here transposed, for ours has N over them."""
    how: Any = dict(num_aie_columns=8, emulate_bf16_mmul_with_bfp16=True, O="float32")
    return _op("GEMM", M=n, K=k, N=m, tile_m=128, tile_k=32, tile_n=64, **how)


def _unknown(dev: str, source: str, what: str, *named: str) -> tuple[Row, ...]:
    """Rows (name: case) of which the same is unknown."""
    return tuple(Row(name, dev, case, (0, 0), source, unknown=what) for name, _, case in (one.partition(": ") for one in named))


def _emulated(m: int, k: int, n: int) -> tuple[Part, ...]:
    return _op("GEMM", M=m, K=k, N=n, tile_m=64, tile_k=88, tile_n=64, num_aie_columns=8, emulate_bf16_mmul_with_bfp16=True)


GEMM = (
    Row("npu2-int8-peak", "npu2", "int8, in registers, 56 TOPS: 4096 instructions a core", _one(4096 * 2 * 512 * 32 / 56e6), "G", "peak"),
    Row("npu1-bf16-tile", "npu1", "bf16 32x32x32 in assembly, one core at 1.8 GHz", _flops(32, 32, 32, 0.398), "T", "kernel"),
    Row("npu2-bfp16-tile", "npu2", "bfp16 64x96x64 in assembly, one core", _flops(64, 96, 64, 1.760), "T", "kernel"),
    Row(
        "gemm-emulated", "npu2", "bf16 made bfp16, 8192x4224x4096, 64x88x64, 8 columns",
        _flops(8192, 4224, 4096, 4.8), "M", "xclbin", _emulated(8192, 4224, 4096),
    ),
    Row(
        "gemm-native", "npu2", "native bf16 4096^3 (K is 4224 here), 64x88x64, 8 columns",
        _flops(4096, 4096, 4096, 1.6), "M", "xclbin",
        _op("GEMM", M=4096, K=4224, N=4096, tile_m=64, tile_k=88, tile_n=64, num_aie_columns=8), scale=4224 / 4096,
    ),
    *(
        Row(f"gemm-{name}-f32", "npu2", f"bf16 to f32, {m}x{k}x{n}, 8x4 cores", _flops(m, k, n, tflops), "A", "xclbin", _wide(m, k, n))
        for name, m, k, n, tflops in (
            ("2048", 2048, 2048, 2048, 8.508), ("2048-512", 2048, 2048, 512, 7.342), ("512", 512, 512, 512, 1.791),
            ("4096", 4096, 4096, 4096, 9.329),
        )
    ),
    *_unknown("npu1", "P1", "shape and tiles", "npu1-int8-best: int8, the best, 6.76 TOPS", "npu1-bf16-best: bf16, the best, 3.14 TOPS"),
    *_unknown("npu2", "P1", "shape and tiles", "npu2-int8-best: int8, the best, 38.05 TOPS", "npu2-bf16-best: bf16, the best, 14.71 TOPS"),
    *_unknown("npu2", "G", "shape and tiles", "npu2-smi-gemm: xrt-smi's gemm, 51.0 TOPS"),
    *_unknown(
        "npu1", "M", "its tile: 2048 ideal cycles are of half as many products",
        "npu1-int16-tile: int16 64x64x64, one core, 2535 cycles",
    ),
    *_unknown(
        "npu2", "P2", "the core's schedule; and no operator here buffers its tiles unequally",
        "atb-mixed: bf16 and bfp16 4096x4096x2048, 128x64x128, 24.3 and 27.3 TFLOPS",
        "atb-wide: bfp16 3072x4096x1536, 192x128x96, 31.3 TFLOPS", "atb-bfp16: bfp16 4096x4096x2048, 128x64x128, 28.5 TFLOPS",
    ),
    *_unknown("npu2", "M", "no operator here keeps A and B as bfp16", "bfp16-plain: bfp16 7680x4096x8192, 96x128x64, 10.2 TFLOPS"),
    *_unknown(
        "npu2", "A", "where bf16 is made of f32: both do not fit a core",
        "gemm-2048-cast: bf16 to bf16, cast in the cores, 2048x8192x2048, 8898 GFLOPS",
        "gemm-2048-drain: bf16 to bf16 by a drain, 2048^3, 6025 GFLOPS", "gemm-1024-drain: 1024^3, 4637 GFLOPS",
        "gemm-512-drain: 512^3, 1703 GFLOPS",
    ),
    *_unknown(
        "npu2", "G", "the core's kernel at that time, half as fast as the one since",
        "gemm-2048-early: native bf16 2048^3, 64x64x64, of an early IRON, 24679 us",
    ),
    *_unknown(
        "npu2", "A", "tiles: 768 is not made of those of mlir-air's other products",
        "gemm-1024x768x768: bf16, by itself and in a fused ELF, 297.5 and 578.5 us", "gemm-1024x768x3072: 1085 and 1461 us",
        "gemm-1024x3072x768: 848 and 1143 us",
    ),
)  # fmt: skip


def _gemv(m: int, k: int, columns: int, rows: int = 4, **more: Any) -> tuple[Part, ...]:
    return _op("GEMV", M=m, K=k, num_aie_columns=columns, tile_size_input=rows, **more)


GEMV = (
    Row("gemv-128x896-air", "npu2", "128x896, 8 columns", _one(84), "A", "xclbin", _op("GEMV", M=128, K=896, num_aie_columns=8)),
    Row("gemv-512x2048", "npu2", "512x2048, step", (43.7, 53), "C", "step", _gemv(512, 2048, 8)),
    Row("gemv-2048x2048", "npu2", "2048x2048, step", (156, 220), "C", "step", _gemv(2048, 2048, 8, tile_size_output=256)),
    Row("gemv-8192x2048", "npu2", "8192x2048, step", (603, 747), "C", "step", _gemv(8192, 2048, 8, tile_size_output=1024)),
    Row("gemv-2048x8192", "npu2", "2048x8192, step", (603, 747), "C", "step", _gemv(2048, 8192, 8, 1, tile_size_output=256)),
    Row("gemv-8192x2048-2", "npu2", "8192x2048 on 2 columns, step", (1336, 1410), "C", "step", _gemv(8192, 2048, 2)),
    Row("gemv-8192x2048-1", "npu2", "8192x2048 on 1 column, step", (2495, 2582), "C", "step", _gemv(8192, 2048, 1)),
    *(
        Row(f"gemv-lm-head{name}", "npu2", f"128256x2048 on {n}, step", us, "C", "step", _gemv(128256, 2048, n, tile_size_output=32))
        for name, n, us in (("", 8, (9238, 10731)), ("-2", 2, (19176, 19266)), ("-1", 1, (37388, 37456)))
    ),
    Row(
        "gemv-lm-head-4", "npu2", "128256x2048 on 4 columns, step: the slowest that is on more than 2", _one(10731), "C", "step",
        _gemv(128256, 2048, 4, tile_size_output=32),
    ),
    Row(
        "gemv-residual", "npu2", "2048x2048, then the residual's add, an ELF", _one(430.6), "S", "elf",
        (*_gemv(2048, 2048, 8, tile_size_output=256), *_op("ElementwiseAdd", size=2048, tile_size=256, num_aie_columns=8)),
    ),
    Row(
        "gemv-residual-folded", "npu2", "2048x2048 with the residual's add folded in, an ELF", _one(367.3), "S", "elf",
        _gemv(2048, 2048, 8, tile_size_output=256, _finish=_op("ElementwiseAdd", size=2048)),
    ),
    Row("gemv-512x2048-npu1", "npu1", "512x2048, in a chain", (477, 601), "C", "chain", _gemv(512, 2048, 4, num_channels=1)),
    Row("gemv-8192x2048-npu1", "npu1", "8192x2048, in a chain", (3572, 3686), "C", "chain", _gemv(8192, 2048, 4, tile_size_output=2048)),
    Row("gemv-lm-head-npu1", "npu1", "128256x2048, in a chain", _one(34112), "C", "chain", _gemv(128256, 2048, 4, tile_size_output=32)),
    *_unknown(
        "npu2", "A", "how a core that has room for one tile of eight rows is fed",
        "gemv-512x2048-air: 512x2048, 8 columns, 136 us", "gemv-2048x2048-air: 330 us", "gemv-8192x2048-air: 1067 us",
        "gemv-16384x2048-air: 2193 us",
    ),
)  # fmt: skip


def _air(operator: str, **fields: Any) -> tuple[Part, ...]:
    """mlir-air's elementwise kernels: eight columns of one core."""
    return _op(operator, num_aie_columns=8, **fields)


def _gather(feeds: int) -> tuple[Part, ...]:
    return _op("Copy", gather=True, table_rows=262144, input_size=262144 * 512, rows=5120, num_channels=feeds)


ELEMENTWISE = (
    Row(
        "memcpy-64m", "npu2", "memcpy, 64 MB in and 64 MB out, every channel", _one(2016), "G", "xclbin",
        _op("Copy", input_size=1 << 25, num_channels=16),
    ),
    Row(
        "add-4m-1", "npu2", "add, 4M, 1 column", _one(2759), "A", "xclbin",
        _op("ElementwiseAdd", size=1 << 22, tile_size=2048, num_aie_columns=1),
    ),
    *(
        Row(f"add-{m}m", "npu2", f"add, {m}M, 8 columns", _one(us), "A", "xclbin", _air("ElementwiseAdd", size=m << 20, tile_size=2048))
        for m, us in ((4, 437), (8, 798))
    ),
    *(
        Row(
            f"silu-mul-{m}m", "npu2", f"SiLU times, {m}M", _one(us), "A", "xclbin",
            _air("SiLU", _finish=_op("ElementwiseMul", size=m << 20), size=m << 20, tile_size=4096),
        )
        for m, us in ((2, 569), (16, 4016))
    ),
    *(
        Row(
            f"gelu-{m}m", "npu2", f"GELU, {m}M, 16 cores", _one(us), "A", "xclbin",
            _air("GELU", size=m << 20, num_channels=2, tile_size=4096),
        )
        for m, us in ((1, 235), (8, 1244))
    ),
    *(
        Row(f"rms-norm-{n}", "npu2", f"RMSNorm, 2048 rows of {n}", _one(us), "A", "xclbin", _air("RMSNorm", rows=2048, cols=n))
        for n, us in ((128, 155), (2048, 911))
    ),
    Row("layer-norm", "npu2", "LayerNorm, 1024 rows of 768", _one(324), "A", "xclbin", _air("LayerNorm", rows=1024, cols=768)),
    Row("rope-small", "npu2", "RoPE, 8x64", _one(83), "A", "xclbin", _air("RoPE", rows=8, cols=64)),
    Row("rope-large", "npu2", "RoPE, 65536x64", _one(579), "A", "xclbin", _air("RoPE", rows=65536, cols=64)),
    Row("tiny-add", "npu2", "add of a decode step, 2048", (2.9, 13.7), "C", "step", _air("ElementwiseAdd", size=2048, tile_size=256)),
    Row("tiny-mul", "npu2", "mul of a decode step, 8192", (4, 17.7), "C", "step", _air("ElementwiseMul", size=8192, tile_size=1024)),
    Row("tiny-silu", "npu2", "SiLU of a decode step, 8192", (3.8, 10), "C", "step", _air("SiLU", size=8192, tile_size=1024)),
    Row(
        "tiny-rope", "npu2", "RoPE of a decode step, 32x64", (3.1, 5.2), "C", "step",
        _op("RoPE", rows=32, cols=64, angle_rows=1, num_aie_columns=1),
    ),
    Row(
        "tiny-rms-norm", "npu2", "RMSNorm of a decode step, 2048, without a weight", (3.4, 3.9), "C", "step",
        _op("RMSNorm", rows=1, cols=2048, num_aie_columns=1),
    ),
    Row(
        "npu1-tiny-chain", "npu1", "the smallest operators, in a chain", (250, 270), "C", "chain",
        _op("ElementwiseAdd", size=2048, tile_size=512, num_aie_columns=4),
    ),
    *_unknown("npu1", "C", "rows and columns", "softmax-npu1: softmax, in a chain, 290 to 371 us"),
)  # fmt: skip

#: Cycles at 1028 MHz of a shim's task by its words.
_TASKS = {
    "mm2s": {1024: 1247, 2048: 3421, 4096: 5304, 8192: 9121, 16384: 17963},
    "s2mm": {1024: 1187, 2048: 2217, 4096: 4261, 8192: 8357, 16384: 16525},
}
OTHERS = (
    Row("sample", "npu2", "Sample of 128256, step", (275, 500), "C", "step", _op("Sample", vocab=128256)),
    Row("gather-1", "npu2", "5120 rows of 262144x512 by 1 feed, an ELF", _one(2002), "S", "elf", _gather(1)),
    Row("gather-4", "npu2", "5120 rows of 262144x512 by 4 feeds, an ELF", _one(903), "S", "elf", _gather(4)),
    *(
        Row(
            f"npu1-{way}-{n}", "npu1", f"a shim's {way.upper()} task of {n} words", _one(cycles / 1028), "E",
            "fill" if way == "mm2s" else "drain", _op("Copy", input_size=n, X="int32", num_channels=1),
        )
        for way, figures in _TASKS.items()
        for n, cycles in figures.items()
    ),
    *_unknown(
        "npu1", "E", "between which events; a stream's width alone takes 256",
        "npu1-tile-drain: a tile's MM2S of 256 words, 244 cycles",
    ),
    *_unknown(
        "npu2", "A", "no operator here has this design: four stages in a cascade",
        "attention-2048: 2048, 32 and 8 heads of 64, causal, 15.4 to 16.1 ms", "attention-2048-32: 32 and 32 heads, 16.9 ms",
        "attention-512: 512, 2 heads, full, 0.73 ms", "attention-1024: 1024, 12 heads, full, 2.36 to 2.61 ms",
    ),
    *_unknown("npu2", "C", "how many keys", "mha-decode: MHA of one query, step, 65.9 us"),
    *_unknown("npu2", "C", "how many queries and keys", "mha-chunk: MHA of a chunk of a prompt, step, 6127 us"),
    *_unknown(
        "npu1", "C", "how many keys; and the operators are no more",
        "gqa-scores-npu1: GQA scores, in a chain, 313 to 372 us", "gqa-context-npu1: GQA context, in a chain, 375 to 408 us",
    ),
)  # fmt: skip

ROWS = (*GEMM, *GEMV, *ELEMENTWISE, *OTHERS)
