"""ONNX files: integers in blocks are read to the exact numbers, wherever they lie; names; and what is refused."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.recognise import describe
from tests.lm.checkpoints.packers import by_activations, drawn, numbers
from tests.onnx.graphs import dense, linear, n_bits, onnx, saved, tensor

N, K = 40, 256
NAME = "a.weight"
WHOLE = drawn(N, K, 64, scale=np.float32)


def read(path, parts, name=NAME, **options):
    """Shape, format's name and numbers of a tensor."""
    shape, format, array = Checkpoint.open(saved(path, parts, **options)).tensors[name]
    return shape, str(format), array.dequantize()


@pytest.mark.parametrize("external", [False, True], ids=["inside", "external"])
@pytest.mark.parametrize("flat", [False, True], ids=["by rows", "flat"])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_a_product_of_n_bits(tmp_path, group, flat, external):
    """Scales of float32, zero points two in a byte, a row's last one alone; older files have both flat."""
    ints, scales, zeros = drawn(N, 384, group, scale=np.float32)
    got = read(tmp_path / "m", n_bits(NAME, ints, scales, zeros, flat=flat), external=external)
    assert got[:2] == ((N, 384), f"uint4_group{group}_float32") and np.array_equal(got[2], numbers(ints, scales, zeros))


@pytest.mark.parametrize("scale", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_zero_points_that_are_left_out_or_are_floats(tmp_path, scale):
    """Without them they are 8; as floats, of the scale's dtype, they need be no integers."""
    ints, scales, _ = drawn(N, K, 64, scale=scale)
    middle = np.full(scales.shape, 8)
    _, format, got = read(tmp_path / "m", n_bits(NAME, ints, scales, None))
    assert format.startswith("int4_group64") and np.array_equal(got, numbers(ints, scales, middle))
    points = (np.arange(scales.size).reshape(scales.shape) % 64 / 4).astype(scale)
    _, format, got = read(tmp_path / "floats", n_bits(NAME, ints, scales, points))
    assert format.startswith("uint4_group64") and np.array_equal(got, numbers(ints, scales, points.astype(np.float32)))


def test_eight_bits(tmp_path):
    """With zero points and without, which then are 128."""
    ints, scales, zeros = drawn(N, K, 64, 8, scale=np.float16)
    _, format, got = read(tmp_path / "m", n_bits(NAME, ints, scales, zeros, 8))
    assert format == "int8_zeros_group64" and np.array_equal(got, numbers(ints, scales, zeros))
    _, format, got = read(tmp_path / "none", n_bits(NAME, ints, scales, None, 8))
    assert format == "int8_group64" and np.array_equal(got, numbers(ints, scales, np.full(scales.shape, 128)))


@pytest.mark.parametrize("external", [False, True], ids=["inside", "external"])
@pytest.mark.parametrize("axis", [0, 1, -2, -1])
@pytest.mark.parametrize("kind", ["uint4", "int4", "uint8", "int8"])
def test_integers_that_are_dequantized_in_blocks(tmp_path, kind, axis, external):
    """Along either axis, signed or not, with zero points and without, which then are 0."""
    ints, scales, zeros = drawn(N, K, 32, int(kind[-1]), scale=np.float16)
    lifted = {"uint4": 0, "int4": 8, "uint8": 0, "int8": 128}[kind]
    stored = (ints - lifted, scales, zeros - lifted)
    shape, format, got = read(tmp_path / "m", linear(NAME, *stored, kind, axis), external=external)
    assert shape == (N, K) and format == ("uint4_group32" if "4" in kind else "int8_zeros_group32")
    assert np.array_equal(got, numbers(ints, scales, zeros))
    _, format, got = read(tmp_path / "none", linear(NAME, *stored[:2], None, kind, axis))
    assert np.array_equal(got, numbers(ints, scales, np.full(scales.shape, lifted)))
    assert (format == "int4_group32") == (kind == "int4") and (format == "int8_group32") == (kind == "int8")


def ordered(ints, scales, zeros, order, bits=4):
    """A MatMulNBits whose columns are of these groups."""
    parts = n_bits(NAME, ints, scales, zeros, bits)
    parts[0].input.extend([*[""] * (zeros is None), f"{NAME}_g_idx"])
    return [*parts, tensor(f"{NAME}_g_idx", order.astype(np.int32), "int32")]


@pytest.mark.parametrize("bits", [4, 8])
def test_groups_in_activation_order(tmp_path, bits):
    """As float32; with zero points and without, which then are in the middle. Groups one behind another run as they are stored."""
    sorted_, scales, zeros = drawn(N, K, 64, bits, scale=np.float16)
    ints, order = by_activations(sorted_, 64)
    _, format, got = read(tmp_path / "m", ordered(ints, scales, zeros, order, bits))
    assert format == "float32" and np.array_equal(got, numbers(ints, scales, zeros, order))
    _, format, got = read(tmp_path / "none", ordered(ints, scales, None, order, bits))
    assert format == "float32" and np.array_equal(got, numbers(ints, scales, np.full(scales.shape, 1 << bits - 1), order))
    _, format, got = read(tmp_path / "usual", ordered(sorted_, scales, zeros, np.arange(K) // 64, bits))
    assert format.endswith("_group64") and np.array_equal(got, numbers(sorted_, scales, zeros))
    for at, wrong in enumerate((4, -1)):
        order[7] = wrong
        with pytest.raises(CheckpointError, match=rf"a\.weight has {wrong} in its g_idx\. Legal: 0 to 3, its groups\."):
            read(tmp_path / f"beyond{at}", ordered(ints, scales, zeros, order, bits))


def test_numbers_in_the_fields_of_their_type(tmp_path):
    """A tensor's numbers may stand in int32_data and float_data instead of raw bytes."""
    ints, scales, zeros = WHOLE
    parts = n_bits(NAME, ints, scales, zeros)
    for one in parts[1:]:
        raw = np.frombuffer(one.raw_data, np.float32 if one.data_type == 1 else np.uint8)
        one.ClearField("raw_data")
        (one.float_data if one.data_type == 1 else one.int32_data).extend(raw.tolist())
    assert np.array_equal(read(tmp_path / "m", parts)[2], numbers(ints, scales, zeros))


def test_names_are_the_modules(tmp_path):
    """An initialiser's own where it is one, the product's path where not; matrices of a product are (N, K)."""
    matrix, vector, table = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(4, np.float32), np.ones((5, 4), np.float32)
    parts = [
        *n_bits("onnx::MatMul_7", *WHOLE, node="/model/layers.0/mlp/up_proj/MatMul_Q4"),
        *n_bits("model.layers.1.attn.q_proj.MatMul.weight", *WHOLE, node="/model/layers.1/attn/q_proj/MatMul_Q4"),
        *linear("onnx::MatMul_8", *WHOLE, node="/model/layers.0/mlp/down_proj/MatMul"),
        *dense("onnx::MatMul_9", matrix, "/lm_head/MatMul"), *dense("model.norm.weight", vector),
        *dense("model.embed_tokens.weight", table), tensor("onnx::Constant_3", np.ones((), np.float32)),
    ]  # fmt: skip
    file = Checkpoint.open(saved(tmp_path / "m", parts))
    names = {"model.layers.0.mlp.up_proj.weight", "model.layers.1.attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"}
    others = {"lm_head.weight", "model.norm.weight", "model.embed_tokens.weight", "onnx::Constant_3"}
    assert set(file.tensors) == names | others and file.tensors.spare == {"onnx::Constant_3"}
    assert np.array_equal(file.tensors["lm_head.weight"][2], matrix) and file.tensors["model.embed_tokens.weight"][0] == (5, 4)
    assert describe(file).startswith("ONNX of tests · no architecture named · 7 tensors (4 float32, 3 uint4_group64_float32)")


def multiplied(model):
    """What onnxruntime multiplies by in a graph of one product, (N, K)."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime, which multiplies, is not installed")
    options = runtime.SessionOptions()  # as it is written: optimised, a product sums in another order
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.eye(K, dtype=np.float32)})[0].T


def runnable(path):
    """The bytes of a folder's graph with one product, as onnxruntime takes them."""
    model = onnx.load(str(path / "model.onnx"))
    given, made = (onnx.helper.make_tensor_value_info(name, 1, [None, n]) for name, n in (("x", K), (f"{NAME}_y", N)))
    model.graph.input.append(given)
    model.graph.output.append(made)
    del model.opset_import[:]
    model.opset_import.extend([onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 10
    return model.SerializeToString()


def test_onnxruntime_multiplies_by_the_numbers_that_are_read(tmp_path):
    """In both forms and each of their kinds."""
    lifted = {"uint4": 0, "int4": 8}
    cases = [n_bits(NAME, *WHOLE), n_bits(NAME, *WHOLE[:2], None), n_bits(NAME, *drawn(N, K, 32, 8, scale=np.float32), 8)]
    cases += [
        linear(NAME, WHOLE[0] - lifted[kind], WHOLE[1], WHOLE[2] - lifted[kind], kind, axis) for kind in lifted for axis in (0, 1)
    ]
    for i, parts in enumerate(cases):
        path = saved(tmp_path / str(i), parts)
        assert np.array_equal(Checkpoint.open(path).tensors[NAME][2].dequantize(), multiplied(runnable(path))), i
    # in activation order it rounds once more, and takes every zero point in bytes for the middle
    ints, order = by_activations(WHOLE[0], 64)
    for zeros in (None, WHOLE[2].astype(np.float32)):
        path = saved(tmp_path / f"ordered{zeros is None}", ordered(ints, WHOLE[1], zeros, order))
        assert np.allclose(Checkpoint.open(path).tensors[NAME][2].dequantize(), multiplied(runnable(path)), rtol=0, atol=1e-7)


def test_onnxruntimes_own_files(tmp_path):
    """What its quantiser makes of a product, in both forms, symmetric and not, is what it multiplies by."""
    missing = "onnxruntime's quantiser, whose files these are, is not installed, or not what it takes"
    quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer", reason=missing)
    QuantFormat = quantizer.QuantFormat
    w = np.random.default_rng(0).standard_normal((N, K)).astype(np.float32)
    node = onnx.helper.make_node("MatMul", ["x", "onnx::MatMul_1"], ["y"], name="/model/q_proj/MatMul")
    given, made = (onnx.helper.make_tensor_value_info(name, 1, [None, n]) for name, n in (("x", K), ("y", N)))
    graph = onnx.helper.make_graph([node], "g", [given], [made], [tensor("onnx::MatMul_1", w.T)])
    for form in (QuantFormat.QOperator, QuantFormat.QDQ):
        for symmetric in (False, True):
            for size in (32, 128):
                model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
                found = quantizer.MatMulNBitsQuantizer(model, block_size=size, is_symmetric=symmetric, quant_format=form)
                found.process()
                raw = found.model.model.SerializeToString()
                folder = tmp_path / f"{form}{symmetric}{size}"
                folder.mkdir()
                (folder / "model.onnx").write_bytes(raw)
                shape, format, array = Checkpoint.open(folder).tensors["model.q_proj.weight"]
                assert shape == (N, K) and str(format) == f"{'int4' if symmetric else 'uint4'}_group{size}_float32"
                assert np.array_equal(array.dequantize(), multiplied(raw)), (form, symmetric, size)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (n_bits(NAME, *WHOLE, block_size=16), r"has groups of 16\. Legal: a multiple of 32\."),
        (n_bits(NAME, *WHOLE, block_size=96), r"has rows of 256, which are not whole groups of 96\."),
        (n_bits(NAME, *WHOLE, block_size=0), r"has N=40, K=256, block_size=0\. Legal: 1 or more\."),
        (n_bits(NAME, *WHOLE, block_size=128), r"has B UINT8 \[40, 4, 32\]\. Legal: UINT8 \[40, 2, 64\]\."),
        (n_bits(NAME, *WHOLE, weight_prepacked=1), r"is packed for a device \(weight_prepacked=1\)\. Legal: 0\."),
        (n_bits(NAME, *WHOLE[:2], np.zeros((N, 6), int)), r"has zero_points \[40, 3\]\. Legal: \[40, 2\]\."),
        (n_bits(NAME, *drawn(N, K, 64, 8, scale=np.float32)[:2], WHOLE[1], 8), r"has zero_points of FLOAT\. Legal: UINT8\."),
        (linear(NAME, *WHOLE, block_size=0), r"has one scale for itself or for each row\. Legal: scales for blocks \(block_size\)\."),
        (linear(NAME, *WHOLE, axis=2), r"has shape \[256, 40\] in blocks along axis 2\. Legal: a matrix, along one of its axes\."),
        (linear(NAME, *WHOLE, dims=(2, 128, 40)), r"has shape \[2, 128, 40\] in blocks along axis 0\. Legal: a matrix"),
        (linear(NAME, *WHOLE, block_size=128), r"has scales \[4, 40\]\. Legal: \[2, 40\]\."),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path, parts, says):
    """It stands in the tensor's place, with the reason."""
    file = Checkpoint.open(saved(tmp_path / "m", parts))
    assert NAME in file.tensors.refused
    with pytest.raises(CheckpointError, match=f"model.onnx: a.weight {says}"):
        file.tensors[NAME]


def test_other_operators_and_computed_weights_are_refused(tmp_path):
    """Two bits, blocks along outputs, groups that are no inputs', gathers of packed rows, scales that a graph computes."""
    make = onnx.helper.make_node
    bits, columns = n_bits("b.weight", *WHOLE), linear("c.weight", WHOLE[0].T, np.ones((K, 1), np.float32), None, axis=1)
    next(one for one in bits[0].attribute if one.name == "bits").i = 2
    ordered, computed = n_bits("d.weight", *WHOLE), n_bits("e.weight", *WHOLE)
    ordered[0].input.append("order")
    computed[0].input[2] = "somewhere"
    columns = [part for part in columns if getattr(part, "op_type", "") != "Transpose"]
    next(part for part in columns if getattr(part, "op_type", "") == "MatMul").input[1] = "c.weight_dq"
    gather = make("GatherBlockQuantized", ["f.weight_Q4", "ids", "s"], ["y"], domain="com.microsoft")
    others = [tensor("order", np.zeros(4, np.int8)), tensor("f.weight_Q4", np.zeros(8, np.uint8))]
    parts = [*bits, *columns, *ordered, *computed, gather, *others]
    refused = Checkpoint.open(saved(tmp_path / "m", parts)).tensors.refused
    for name, says in (
        ("b.weight", "has 2 bits. Legal: 4, 8."), ("c.weight", "is in blocks along its outputs, which no product takes."),
        ("d.weight", "has g_idx INT8 [4]. Legal: INT32 [256]."),
        ("e.weight", "has an input 2 that is computed, or missing."), ("f.weight", "is of GatherBlockQuantized, which is not read."),
    ):  # fmt: skip
        assert says in refused[name], name


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (dict(location="../x"), r"lies in '\.\./x'\. Legal: the name of a file beside it\."),
        (dict(location="/etc/passwd"), r"lies in '/etc/passwd'\."),
        (dict(location=""), r"lies in '\.'\."),
        (dict(location="gone.data"), r"gone\.data: No such file or directory\."),
        (dict(offset="1000000"), r"lies at bytes 1000000 to"),
        (dict(offset="-4"), r"lies at bytes -4 to"),
        (dict(length="4"), r"is \d+ bytes; its place has 4\."),
        (dict(length="many"), r"which is no place\."),
    ],
)
def test_external_data_that_is_not_there(tmp_path, said, says):
    """Nothing outside the folder is opened, nothing behind a file's end."""
    path = saved(tmp_path / "m", dense("a.weight", np.ones((4, 4), np.float32)), external=True)
    model = onnx.load(str(path / "model.onnx"), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = said.get(entry.key, entry.value)
    (path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=says):
        Checkpoint.open(path).tensors["a.weight"]


def test_files_that_are_none(tmp_path, monkeypatch):
    """Bytes that are no graph; several files in a folder; a folder that has safetensors besides; no package onnx."""
    path = saved(tmp_path / "m", dense("a.weight", np.ones((4, 4), np.float32)))
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 64)
    with pytest.raises(CheckpointError, match=r"bad\.onnx: damaged, or not what its kind of file holds"):
        Checkpoint.open(tmp_path / "bad.onnx")
    (path / "other.onnx").write_bytes(b"")
    assert set(Checkpoint.open(path).tensors) == {"a.weight"}
    (path / "model.onnx").rename(path / "one.onnx")
    with pytest.raises(CheckpointError, match=r"holds 2 ONNX files \(one\.onnx, other\.onnx\) and no model\.onnx; name one of them\."):
        Checkpoint.open(path)
    assert set(Checkpoint.open(path / "one.onnx").tensors) == {"a.weight"}
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(CheckpointError, match=r"takes the package onnx; install it with: pip install 'iron-onnx\[onnx\]'\."):
        Checkpoint.open(path / "one.onnx")
