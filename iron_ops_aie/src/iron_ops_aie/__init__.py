"""The main operator catalog. Names load on first use: importing one operator imports one operator's module."""

from __future__ import annotations

import _iron_start

_iron_start.check()

from iron_core.lazy_names import lazy_names  # noqa: E402 (the iron_core that was checked)

_HOME = {
    "AXPY": "elementwise.axpy",
    "CausalConv1d": "recurrent.causal_conv1d",
    "Clamp": "elementwise.clamp",
    "CombineExperts": "experts.combine_experts",
    "Copy": "moving.copy",
    "DeltaGates": "recurrent.delta_gates",
    "DepthwiseConv1d": "products.depthwise_conv1d",
    "Dequant": "products.dequant",
    "ElementwiseAdd": "elementwise.elementwise_add",
    "ElementwiseMax": "elementwise.elementwise_max",
    "ElementwiseMul": "elementwise.elementwise_mul",
    "Emit": "tokens.emit",
    "GELU": "elementwise.gelu",
    "GEMM": "products.gemm",
    "GEMV": "products.gemv",
    "GatedDeltaChunk": "recurrent.gated_delta_chunk",
    "GatedDeltaStep": "recurrent.gated_delta_step",
    "GatedExperts": "experts.gated_experts",
    "GatherWords": "moving.gather_words",
    "L2Norm": "rowwise.l2_norm",
    "LayerNorm": "rowwise.layer_norm",
    "LeakyReLU": "elementwise.leaky_relu",
    "Limbs": "rowwise.limbs",
    "Log": "elementwise.log",
    "MHA": "attention.mha",
    "Magnitude": "rowwise.magnitude",
    "Merge": "tokens.merge",
    "PagedMHA": "attention.paged_mha",
    "PatchPositions": "images.patch_positions",
    "Quantize": "elementwise.quantize",
    "QuantizeRows": "rowwise.quantize_rows",
    "RMSNorm": "rowwise.rms_norm",
    "ReLU": "elementwise.relu",
    "Repeat": "moving.repeat",
    "Resample": "images.resample",
    "ResampleTaps": "images.resample_taps",
    "RoPE": "rowwise.rope",
    "Route": "experts.route",
    "RowwiseAdd": "rowwise.rowwise_add",
    "RowwiseMul": "rowwise.rowwise_mul",
    "Sample": "tokens.sample",
    "Scale": "elementwise.scale",
    "ScatterRows": "moving.scatter_rows",
    "SiLU": "elementwise.silu",
    "Sigmoid": "elementwise.sigmoid",
    "SoftCap": "elementwise.soft_cap",
    "Softmax": "rowwise.softmax",
    "Softplus": "elementwise.softplus",
    "Tanh": "elementwise.tanh",
    "Transpose": "moving.transpose",
}

__all__ = sorted(_HOME)
__getattr__, __dir__ = lazy_names(__name__, _HOME)
