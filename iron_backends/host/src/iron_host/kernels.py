"""The slots of the kernels in csrc. What they mean is said there, where a kernel takes them."""

from __future__ import annotations

from iron_host.slots import Slots

# elementwise.h
UNARY = Slots("iron::slots::Unary", ("T",), {"x": "const T", "y": "T"}, ("valid",), ("number",))
BINARY = Slots("iron::slots::Binary", ("T",), {"a": "const T", "b": "const T", "y": "T"}, ("valid",), ("number",))
CLAMP = Slots("iron::slots::Clamp", ("T",), {"x": "const T", "y": "T"}, ("valid",), ("low", "high"))
LOG_SUM = Slots("iron::slots::LogSum", ("T",), {"x": "const float", "y": "T"}, ("valid",), ("offset",))
QUANTIZE = Slots("iron::slots::Quantize", ("T",), {"x": "const T", "y": "int8_t"}, ("valid",), ("scale",))
QUANTIZE_FITTED = Slots("iron::slots::QuantizeFitted", ("T",), {"x": "const T", "y": "int8_t", "found": "float"}, ("valid",))
QUANTIZE_EACH = Slots(
    "iron::slots::QuantizeEach", ("T",), {"x": "const T", "y": "int8_t", "found": "float"}, ("valid", "cols")
)
ROWWISE = Slots("iron::slots::Rowwise", ("T",), {"x": "const T", "vector": "const T", "y": "T"}, ("valid", "cols"))

# rows.h
RMS_NORM = Slots(
    "iron::slots::RMSNorm", ("T", "W"), {"x": "const T", "weight": "const W", "y": "T"}, ("valid", "cols"), ("epsilon",)
)
LAYER_NORM = Slots(
    "iron::slots::LayerNorm",
    ("T", "W"),
    {"x": "const T", "weight": "const W", "bias": "const W", "y": "T"},
    ("valid", "cols"),
    ("epsilon",),
)
L2_NORM = Slots("iron::slots::L2Norm", ("T",), {"x": "const T", "y": "T"}, ("valid", "cols"), ("epsilon",))
SOFTMAX = Slots("iron::slots::Softmax", ("T",), {"x": "const T", "y": "T"}, ("valid", "cols", "valid_cols"))
ROPE = Slots(
    "iron::slots::RoPE",
    ("T", "A"),
    {"x": "const T", "angles": "const A", "y": "T"},
    ("valid", "cols", "rows_per_angle", "method_type"),
)
LIMBS = Slots("iron::slots::Limbs", ("T", "L"), {"x": "const T", "y": "L"}, ("valid", "cols"))
MAGNITUDE = Slots("iron::slots::Magnitude", ("T",), {"x": "const T", "y": "T"}, ("valid", "cols"))

# conv.h
DEPTHWISE_CONV1D = Slots(
    "iron::slots::DepthwiseConv1d", ("T", "W"), {"x": "const T", "weight": "const W", "y": "T"}, ("valid", "channels", "taps")
)

CAUSAL_CONV1D = Slots(
    "iron::slots::CausalConv1d",
    ("T", "W"),
    {"x": "const T", "weight": "const W", "state": "T", "y": "T"},
    ("valid", "past", "channels", "taps"),
)

# delta.h
_DELTA: dict[str, str] = {
    **{name: "const T" for name in "qkv"},
    **dict.fromkeys(("g", "beta"), "const float"),
    "state": "float",
    "o": "T",
}
_DELTA_SIZES = ("valid", "past", "key_heads", "value_heads", "key_dim", "value_dim", "repeat", "tiled")
GATED_DELTA = Slots("iron::slots::GatedDelta", ("T",), _DELTA, _DELTA_SIZES, ("scale",))
GATED_DELTA_CHUNK = Slots("iron::slots::GatedDeltaChunk", ("T",), _DELTA, (*_DELTA_SIZES, "chunk"), ("scale",))
DELTA_GATES = Slots(
    "iron::slots::DeltaGates",
    ("T",),
    {"a": "const T", "b": "const T", "bias": "const float", "rate": "const float", "g": "float", "beta": "float"},
    ("valid", "heads"),
)

# move.h
COPY = Slots("iron::slots::Copy", ("S", "D"), {"x": "const S", "y": "D"}, ("loops", "trips[5]", "x_steps[5]", "y_steps[5]"))
GATHER = Slots(
    "iron::slots::Gather", ("S", "D"), {"x": "const S", "ids": "const int32_t", "y": "D"}, ("count", "cols", "table_rows", "y_step")
)
SCATTER = Slots(
    "iron::slots::Scatter", ("S", "D"), {"x": "const S", "places": "const int32_t", "pool": "D"}, ("valid", "width", "slots")
)
REPEAT = Slots("iron::slots::Repeat", ("T",), {"x": "const T", "y": "T"}, ("valid", "cols", "repeat"))
TRANSPOSE = Slots("iron::slots::Transpose", ("T",), {"x": "const T", "y": "T"}, ("num_batches", "M", "N"))
MERGE = Slots(
    "iron::slots::Merge",
    ("T",),
    {"ids": "const T", "y": "T"},
    ("valid", "audio_token", "image_token", "audio_at", "vision_at"),
)

# sample.h
SAMPLE = Slots(
    "iron::slots::Sample",
    ("T",),
    {"logits": "const T", "draws": "const int32_t", "tokens": "int32_t", "token": "int32_t"},
    ("vocab", "k_max"),
)

# route.h
ROUTE = Slots(
    "iron::slots::Route",
    ("T",),
    {"logits": "const T", "ids": "int32_t", "weights": "float"},
    ("valid", "experts", "k", "renormalise"),
    ("scale",),
)

# images.h
PATCH_POSITIONS = Slots(
    "iron::slots::PatchPositions",
    (),
    {"sources": "int32_t", "positions": "int32_t"},
    ("valid_rows", "valid_columns", "pool", "cores", "places", "source_rows", "position_rows"),
)
RESAMPLE_TAPS = Slots(
    "iron::slots::ResampleTaps", (), {"taps": "int32_t"}, ("in_length", "out_length", "words", "slots", "chunks")
)
RESAMPLE = Slots(
    "iron::slots::Resample",
    ("T",),
    {"image": "const uint8_t", "taps_w": "const int32_t", "taps_h": "const int32_t", "patches": "T"},
    ("rows", "out_rows", "out_columns", "row_bytes", "words", "cores", "patches_out", "reach", "width"),
)

# matmul.h, and block_exact of blocks.h
PRODUCT = Slots(
    "iron::slots::Product",
    ("X", "W", "O"),
    {"x": "const X", "w": "const W", "c": "O"},
    (
        *("M", "N", "K", "x_row", "w_row", "by_rows", "c_row", "c_column"),
        *("batches", "x_batch", "w_batch", "c_batch", "repeat"),
    ),
)

# panels.h
PANEL_PRODUCT = Slots(
    "iron::slots::PanelProduct",
    ("X", "W", "O"),
    {"x": "const X", "w": "const W", "c": "O"},
    ("M", "N", "K", "in_tiles", "x_row", "c_row"),
)

# flm.h
FLM_GEMM = Slots(
    "iron::slots::FlmGemm",
    ("T",),
    {"x": "const T", "w": "const uint8_t", "c": "T"},
    ("M", "N", "K", "tile_n", "ct_k", "mode", "steps", "down"),
    ("low", "high"),
)

# integers.h
INTEGER_PRODUCT = Slots(
    "iron::slots::IntegerProduct",
    ("X", "W", "O"),
    {**dict(PRODUCT.pointers), "row_scale": "const float"},
    PRODUCT.ints,
    ("scale",),
)

# rounded.h
QUANTIZE_ROWS = Slots("iron::slots::QuantizeRows", ("X",), {"x": "const X"}, ("M", "K", "x_row"))

# blocks.h
BLOCK_PRODUCT = Slots(
    "iron::slots::BlockProduct",
    ("O",),
    {"w": "const uint8_t", "c": "O"},
    ("M", "N", "K", "in_tiles", "c_row", "c_column", "batches", "c_batch", "repeat", "ahead", "x_rows"),
)
DEQUANTIZE = Slots("iron::slots::Dequantize", ("T",), {"x": "const uint8_t", "y": "T"}, ("valid", "cols"))
PACK_BLOCKS = Slots("iron::slots::PackBlocks", (), {"w": "const uint8_t", "tiles": "uint8_t"}, ("N", "K", "matrices"))
BLOCK_INTEGERS = Slots(
    "iron::slots::BlockIntegers", (), {"w": "const uint8_t", "q": "const int8_t", "products": "int32_t"}, ("N", "K")
)

# experts.h
PICKED = Slots(
    "iron::slots::Picked",
    ("X", "O"),
    {"x": "const X", "w": "const uint8_t", "up": "const uint8_t", "ids": "const int32_t", "y": "O"},
    ("rows", "k", "experts", "M", "N", "K", "w_in_tiles", "up_in_tiles", "y_row", "y_column", "ahead"),
)
COMBINED = Slots(
    "iron::slots::Combined",
    ("X", "O"),
    {
        **{"x": "const X", "w": "const uint8_t", "ids": "const int32_t", "weights": "const float"},
        **{"common": "const X", "common_gate": "const float", "y": "O"},
    },
    ("rows", "k", "experts", "N", "K", "w_in_tiles", "ahead"),
)

# packed.h
PACKED_PRODUCT = Slots(
    "iron::slots::PackedProduct",
    ("X", "O"),
    {"x": "const X", "w": "const uint8_t", "c": "O"},
    ("M", "N", "K", "w_rows", "x_row", "c_row", "c_column", "batches", "x_batch", "c_batch", "repeat"),
)
PACKED_DEQUANTIZE = Slots(
    "iron::slots::PackedDequantize", ("T",), {"x": "const uint8_t", "y": "T"}, ("valid", "cols", "rows")
)
PACKED_TO_BFP16 = Slots("iron::slots::PackedToBfp16", (), {"x": "const uint8_t", "y": "uint8_t"}, ("N", "K", "tile_n", "ct_k"))

# attention.h
ATTENTION = Slots(
    "iron::slots::Attention",
    ("T", "C"),
    {"q": "const T", "k": "const C", "v": "const C", "bias": "const T", "o": "T"},
    (
        *("heads", "kv_heads", "queries", "keys", "d", "q_row", "q_head", "kv_row", "kv_head", "bias_row", "bias_head"),
        *("causal", "window", "in_runs", "block", "ahead"),
    ),
    ("scale", "soft_cap"),
)

# paged.h
PAGED = Slots(
    "iron::slots::Paged",
    ("T", "C"),
    {
        **{"q": "const T", "k": "const C", "v": "const C"},
        **dict.fromkeys(("tables", "owner", "at"), "const int32_t"),
        "o": "T",
    },
    ("rows", "heads", "kv_heads", "d", "pages", "page", "sequences", "most", "window", "block", "ahead"),
    ("scale", "soft_cap"),
)

# whole.h
WHOLE = Slots(
    "iron::slots::Whole",
    ("T", "C"),
    {"q": "const T", "k": "const C", "v": "const C", "spans": "const int32_t", "o": "T"},
    ("heads", "kv_heads", "queries", "keys", "d", "q_row", "q_head", "kv_row", "kv_head", "window", "keys_most"),
    ("scale", "soft_cap"),
)

# checksum.h, limits.h
CHECKSUM = Slots("iron::slots::Checksum", (), {"data": "const uint8_t", "sums": "uint64_t"}, ("bytes", "piece"))
LIMITS = Slots("iron::slots::Limits", (), {"table": "const int64_t", "made": "double"}, ("entries", "rounds", "bytes"))

#: All of them: what slots.h declares for every kernel.
TABLES: tuple[Slots, ...] = tuple(value for value in tuple(globals().values()) if isinstance(value, Slots))
