"""GPTQ's files: the exact numbers in both conventions of zero points, which of them is told and how, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints.checkpoint import Checkpoint
from tests.lm.checkpoints.packers import BF16, by_activations, config, drawn, folder, gptq, numbers

N, K = 48, 256
WHOLE = drawn(N, K, 64)


def matrix(path, parts, packed, **options):
    """The one matrix of a folder, and the checkpoint; said: keywords of `Checkpoint.open`."""
    said = {key: options.pop(key) for key in ("gptq_zeros",) if key in options}
    checkpoint = Checkpoint.open(folder(path, {f"a.{name}": part for name, part in parts.items()}, packed, **options), **said)
    return checkpoint.tensors.get("a.weight", checkpoint.tensors.get("a")), checkpoint


@pytest.mark.parametrize("convention", ["v1", "v2"])
@pytest.mark.parametrize("group", [32, 64, 128, -1])
@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
def test_four_bits_are_read_to_the_exact_numbers(tmp_path, convention, group, symmetric):
    """Whatever the group, -1 being one of a whole row; of a symmetric file nothing is kept of its zero points."""
    ints, scales, zeros = drawn(N, K, K if group == -1 else group, symmetric=symmetric)
    named = {"v1": "gptq", "v2": "gptq_v2"}[convention]
    packed = config("gptq", group, sym=symmetric, checkpoint_format=named)
    (shape, format, array), checkpoint = matrix(tmp_path / "m", gptq(ints, scales, zeros, convention), packed)
    assert shape == (N, K) and str(format) == f"{'int4' if symmetric else 'uint4'}_group{K if group == -1 else group}"
    assert np.array_equal(array.dequantize(), numbers(ints, scales, zeros))
    assert set(checkpoint.tensors.names) == {"a.weight"} and f"({convention}: " in checkpoint.file.described
    assert f"GPTQ, 4 bits, {'rows for groups' if group == -1 else f'groups of {group}'}, zero points" in checkpoint.file.described


@pytest.mark.parametrize("convention", ["v1", "v2"])
@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
def test_eight_bits_are_read_to_the_exact_numbers(tmp_path, convention, symmetric):
    """A byte is a signed one."""
    ints, scales, zeros = drawn(N, K, 128, 8, symmetric)
    packed = config("gptq", 128, bits=8, sym=symmetric, checkpoint_format={"v1": "gptq", "v2": "gptq_v2"}[convention])
    (_, format, array), _ = matrix(tmp_path / "m", gptq(ints, scales, zeros, convention, 8), packed)
    assert str(format) == ("int8_group128" if symmetric else "int8_zeros_group128")
    assert np.array_equal(array.dequantize(), numbers(ints, scales, zeros))


@pytest.mark.parametrize("scale", [np.float16, BF16, np.float32])
def test_every_zero_point_and_scale_is_held(tmp_path, scale):
    """Zero points 0 to 15, the first stored as 15 by v1; scales of each dtype that packers use."""
    ints, scales, _ = drawn(N, K, 32, scale=scale)
    zeros = np.arange(N * 8).reshape(N, 8) % 16
    parts = gptq(ints, scales, zeros)
    assert np.array_equal(np.unique(np.stack([parts["qzeros"] >> 4 * i & 15 for i in range(8)])), np.arange(16))
    (_, _, array), _ = matrix(tmp_path / "m", parts, config("gptq", 32), gptq_zeros="v1")
    assert np.array_equal(array.dequantize(), numbers(ints, scales, zeros))


def test_a_file_of_any_number_of_shards_and_stacked_matrices(tmp_path):
    """A matrix's parts may lie in several files; matrices of experts, in one tensor."""
    made = [gptq(*drawn(N, K, 64, seed=seed)) for seed in range(3)]
    parts = {name: np.stack([one[name] for one in made]) for name in made[0]}
    (shape, _, array), checkpoint = matrix(tmp_path / "m", parts, config("gptq", 64), shards=3)
    assert shape == (3, N, K) and "3 files, GPTQ, 4 bits, groups of 64" in checkpoint.file.described
    assert np.array_equal(array.dequantize(), np.stack([numbers(*drawn(N, K, 64, seed=seed)) for seed in range(3)]))
    assert np.array_equal(array[1].dequantize(), array.dequantize()[1])


@pytest.mark.parametrize("convention", ["v1", "v2"])
@pytest.mark.parametrize("named", [None, "gptq", "gptq_v2"])
def test_a_symmetric_files_zero_points_tell_whatever_it_says(tmp_path, convention, named):
    """All are 7 where they are stored less one and 8 where not; a checkpoint_format against that is told."""
    ints, scales, zeros = drawn(N, K, 128, symmetric=True)
    packed = config("gptq", 128, sym=True) | ({} if named is None else {"checkpoint_format": named})
    (_, _, array), checkpoint = matrix(tmp_path / "m", gptq(ints, scales, zeros, convention), packed)
    assert np.array_equal(array.dequantize(), numbers(ints, scales, zeros))
    against = {"gptq": "v1", "gptq_v2": "v2"}.get(named, convention) != convention
    stored = {"v1": 7, "v2": 8}[convention]
    assert f"all looked at are {stored}, as a symmetric packer's are" in checkpoint.file.described
    assert ("though checkpoint_format says" in checkpoint.file.described) == against


@pytest.mark.parametrize("convention", ["v1", "v2"])
def test_numbers_around_zero_tell_where_nothing_else_does(tmp_path, convention):
    """Of weights that lie around 0 integers less zero points do so too, which they do in one convention alone."""
    ints, scales, zeros = drawn(128, 512, 128)
    (_, _, array), checkpoint = matrix(tmp_path / "m", gptq(ints, scales, zeros, convention), config("gptq", 128))
    assert np.array_equal(array.dequantize(), numbers(ints, scales, zeros))
    assert f"({convention}: by the numbers; mean integer less zero point: v1 " in checkpoint.file.described


def test_a_file_that_does_not_tell_is_refused_with_what_to_say(tmp_path):
    """Here the numbers lie half a step to one side, as they would in neither convention; what is said then decides."""
    ints, scales, zeros = drawn(128, 512, 128)
    ints[:, ::2] = np.minimum(ints[:, ::2] + 1, 15)
    parts = gptq(ints, scales, zeros)
    found, checkpoint = matrix(tmp_path / "m", parts, config("gptq", 128))
    assert found is None and set(checkpoint.tensors.refused) == {"a.weight"}
    with pytest.raises(CheckpointError, match=r"nothing tells how zero points are stored: say --gptq-zeros v1 \(less one\) or v2"):
        checkpoint.tensors["a.weight"]
    for convention, moved in (("v1", 0), ("v2", -1)):
        array = Checkpoint.open(tmp_path / "m", gptq_zeros=convention).tensors["a.weight"][2]
        assert np.array_equal(array.dequantize(), numbers(ints, scales, (zeros + moved) % 16)), convention


def test_a_checkpoint_format_against_the_numbers_is_refused(tmp_path):
    """Neither is believed; who opens the file says it."""
    parts = gptq(*drawn(128, 512, 128), "v2")
    found, checkpoint = matrix(tmp_path / "m", parts, config("gptq", 128, checkpoint_format="gptq"))
    says = r"checkpoint_format says v1, and the numbers do not: say --gptq-zeros v1 \(less one\) or v2"
    with pytest.raises(CheckpointError, match=says):
        checkpoint.tensors["a.weight"]
    array = Checkpoint.open(tmp_path / "m", gptq_zeros="v2").tensors["a.weight"][2]
    assert found is None and np.array_equal(array.dequantize(), numbers(*drawn(128, 512, 128)))


def test_what_is_said_of_a_symmetric_file_is_done(tmp_path):
    """Zero points of 9, then, all of them kept."""
    ints, scales, zeros = drawn(N, K, 128, symmetric=True)
    (_, format, array), _ = matrix(tmp_path / "m", gptq(ints, scales, zeros, "v2"), config("gptq", 128, sym=True), gptq_zeros="v1")
    assert str(format) == "uint4_group128" and np.array_equal(array.dequantize(), numbers(ints, scales, zeros + 1))


def test_one_matrix_that_is_not_symmetric_among_many(tmp_path):
    """It was not looked at; its numbers are not taken for others when they are asked for."""
    tensors = {}
    for i in range(20):
        ints, scales, zeros = drawn(N, K, 128, symmetric=True, seed=i)
        zeros[0, 0] -= i == 1
        tensors |= {f"a{i}.{name}": part for name, part in gptq(ints, scales, zeros).items()}
    checkpoint = Checkpoint.open(folder(tmp_path / "m", tensors, config("gptq", 128, sym=True)))
    assert checkpoint.tensors["a0.weight"][2].dequantize().shape == (N, K)
    with pytest.raises(CheckpointError, match=r"a1\.qzeros are not all 8, as those of a symmetric packer's other matrices"):
        checkpoint.tensors["a1.weight"][2].dequantize()


@pytest.mark.parametrize("name", ["quantize_config.json", "quant_config.json"])
def test_a_file_beside_says_how_weights_are_packed(tmp_path, name):
    """Where config.json does not."""
    ints, scales, zeros = drawn(N, K, 128, symmetric=True)
    path = folder(tmp_path / "m", {f"a.{key}": part for key, part in gptq(ints, scales, zeros).items()}, None)
    (path / name).write_text(json.dumps({key: value for key, value in config("gptq", 128, sym=True).items() if key != "quant_method"}))
    assert np.array_equal(Checkpoint.open(path).tensors["a.weight"][2].dequantize(), numbers(ints, scales, zeros))


def test_matrices_that_the_packer_left_alone(tmp_path):
    """`dynamic` may name those that are not packed; they are as they are."""
    tensors = {f"a.{name}": part for name, part in gptq(*WHOLE).items()} | {"b.weight": np.ones((N, K), np.float16)}
    packed = config("gptq", 64, checkpoint_format="gptq", dynamic={"-:b.*": {}})
    found = Checkpoint.open(folder(tmp_path / "m", tensors, packed)).tensors
    assert np.array_equal(found["a.weight"][2].dequantize(), numbers(*WHOLE)) and found["b.weight"][2].dtype == np.float16


def test_biases_of_zeros_may_stay_over(tmp_path):
    """Some packers write one for every matrix, of models that have none; one of other numbers is the model's."""
    parts = gptq(*drawn(N, K, 128, symmetric=True))
    tensors = {f"{at}.{name}": part for at in "ab" for name, part in parts.items()}
    tensors |= {"a.bias": np.zeros(N, np.float16), "b.bias": np.ones(N, np.float16)}
    checkpoint = Checkpoint.open(folder(tmp_path / "m", tensors, config("gptq", 128, sym=True)))
    shapes = {"x": (N, K), "y": (N, K)}
    with pytest.raises(CheckpointError, match=r": b\.bias is none this model has\.$"):
        checkpoint.take(shapes, {"x": "a.weight", "y": "b.weight"})
    assert set(checkpoint.take({"z": (N,), **shapes}, {"x": "a.weight", "y": "b.weight", "z": "b.bias"})) == {"x", "y", "z"}


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (dict(bits=3), r"quantization_config: 3 bits\. Legal: 4, 8\."),
        (dict(bits=2), r"2 bits\. Legal: 4, 8\."),
        (dict(bits="4"), r"bits is '4'; legal: a whole number"),
        (dict(group_size=0), r"group_size is 0; legal"),
        (dict(group_size=16), r"has groups of 16\. Legal: a multiple of 32\."),
        (dict(group_size=96), r"has rows of 256, which are not whole groups of 96\."),
        (dict(group_size=128), r"has scales of shape \[4, 48\]\. Legal: \[2, 48\]\."),
        (dict(quant_method="bitsandbytes"), r"quant_method is 'bitsandbytes'\. Legal: gptq, awq\."),
        (dict(quant_method=["gptq"]), r"quant_method is a list\. Legal"),
        (dict(checkpoint_format="marlin"), r"checkpoint_format is 'marlin'\. Legal: gptq, gptq_v2\."),
        (dict(checkpoint_format=7), r"checkpoint_format is 7\. Legal"),
        (dict(pack_dtype="int16"), r"pack_dtype is 'int16'\. Legal: int32\."),
        (dict(dynamic={"-:.*down.*": {}, "+:.*up.*": {"bits": 8}}), r"dynamic gives matrices bits and groups of their own\."),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path, packed, says):
    """Bits, groups, packers and layouts; the refusal stands in the tensor's place, and names the file's entry."""
    settings = config("gptq", 64, checkpoint_format="gptq") | packed
    found, checkpoint = matrix(tmp_path / "m", gptq(*WHOLE) | {"bias": np.ones(N, np.float16)}, settings)
    assert found is None and list(checkpoint.tensors) == ["a.bias"]
    with pytest.raises(CheckpointError, match=says):
        checkpoint.tensors["a.weight"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(qzeros=None), r"no matrix has qweight and qzeros of int32, as a should"),
        (dict(scales=None), r"has no scales beside it"),
        (dict(scales=np.ones((4, N), np.int32)), r"has scales of int32\. Legal: float16, bfloat16, float32"),
        (dict(scales=np.ones((4, N + 8), np.float16)), r"has scales of shape \[4, 56\]\. Legal: \[4, 48\]"),
        (dict(qzeros=np.zeros((4, 5), np.int32)), r"has qzeros of shape \[4, 5\]\. Legal: \[4, 6\]"),
        (dict(qweight=np.zeros((32, 0), np.int32)), r"no matrix has qweight and qzeros of int32, as a should"),
        (dict(qweight=np.zeros(32, np.int32)), r"no matrix has qweight and qzeros of int32"),
        (dict(qweight=np.zeros((32, N), np.int64)), r"no matrix has qweight and qzeros of int32"),
        (dict(g_idx=np.zeros(K, np.int64)), r"has g_idx of int64\. Legal: int32"),
        (dict(g_idx=np.zeros(K + 1, np.int32)), r"has g_idx of shape \[257\]\. Legal: \[256\]"),
        (dict(weight=np.zeros((N, K), np.float16)), r"stands beside a\.weight\. Legal: one of them"),
        (dict(g_idx=np.full(K, 4, np.int32)), r"has 4 in its g_idx\. Legal: 0 to 3, its groups"),
        (dict(g_idx=np.arange(K, dtype=np.int32) // 64 - 1), r"has -1 in its g_idx\. Legal: 0 to 3, its groups"),
        (dict(g_idx=np.arange(K, dtype=np.float32) // 64), r"has g_idx of float32\. Legal: int32"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(tmp_path, change, says):
    """One error each, of the matrix by its name."""
    parts = {name: part for name, part in (gptq(*WHOLE) | change).items() if part is not None}
    found, checkpoint = matrix(tmp_path / "m", parts, config("gptq", 64, checkpoint_format="gptq"))
    assert found is None
    with pytest.raises(CheckpointError, match=f"/m: a.qweight .*{says}"):
        checkpoint.tensors["a.weight"]


@pytest.mark.parametrize("convention", ["v1", "v2"])
@pytest.mark.parametrize(("bits", "group", "symmetric"), [(4, 32, False), (4, 128, True), (8, 64, False), (8, 128, True)])
def test_groups_scattered_by_activation_order_are_read_to_the_exact_numbers(tmp_path, convention, bits, group, symmetric):
    """As float32, for no product takes such groups, which is said; whole groups in another order, and a few inputs of another's."""
    sorted_, scales, zeros = drawn(N, K, group, bits, symmetric)
    whole = (np.arange(K) // group + 1) % (K // group)
    odd = np.arange(K) // group
    odd[:3] = K // group - 1
    for at, (ints, g_idx) in enumerate((by_activations(sorted_, group), (sorted_, whole), (sorted_, odd))):
        packed = config("gptq", group, bits=bits, desc_act=True, sym=symmetric)
        parts = gptq(ints, scales, zeros, convention, bits, g_idx)
        (shape, format, array), checkpoint = matrix(tmp_path / f"m{at}", parts, packed, gptq_zeros=convention)
        want = numbers(ints, scales, zeros, g_idx)
        assert shape == (N, K) and str(format) == "float32" and np.array_equal(array.dequantize(), want)
        assert np.array_equal(array[5:9], want[5:9]) and array.nbytes == want.nbytes
        assert "1 matrices in activation order, as float32" in checkpoint.file.described
    (_, format, array), _ = matrix(tmp_path / "usual", gptq(sorted_, scales, zeros, convention, bits), packed, gptq_zeros=convention)
    assert format.packed and np.array_equal(array.dequantize(), numbers(sorted_, scales, zeros))


def test_numbers_around_zero_tell_in_activation_order_too(tmp_path):
    """Each integer is measured from its own group's zero point, here far apart."""
    zeros = np.arange(128)[:, None] % 3 + np.array([[1, 11, 5, 8]])
    sorted_ = np.clip(np.repeat(zeros, 128, 1) + np.rint(np.random.default_rng(0).standard_normal((128, 512))).astype(int), 0, 15)
    ints, g_idx = by_activations(sorted_, 128)
    for convention in ("v1", "v2"):
        parts = gptq(ints, np.full((128, 4), 0.01, np.float16), zeros, convention, g_idx=g_idx)
        (_, _, array), checkpoint = matrix(tmp_path / convention, parts, config("gptq", 128, desc_act=True))
        assert f"({convention}: by the numbers" in checkpoint.file.described
        assert np.array_equal(array.dequantize(), numbers(ints, np.full((128, 4), 0.01, np.float16), zeros, g_idx))


def test_experts_in_one_tensor_have_an_order_each(tmp_path):
    """g_idx then has a row for each."""
    made = []
    for seed in range(3):
        sorted_, scales, zeros = drawn(N, K, 64, seed=seed)
        made.append((*by_activations(sorted_, 64, seed), scales, zeros))
    each = [gptq(ints, scales, zeros, g_idx=g_idx) for ints, g_idx, scales, zeros in made]
    parts = {name: np.stack([one[name] for one in each]) for name in each[0]}
    (shape, _, array), _ = matrix(tmp_path / "m", parts, config("gptq", 64, desc_act=True, checkpoint_format="gptq"))
    want = np.stack([numbers(ints, scales, zeros, g_idx) for ints, g_idx, scales, zeros in made])
    assert shape == (3, N, K) and np.array_equal(array.dequantize(), want) and np.array_equal(array[1], want[1])


def test_activation_order_needs_a_g_idx(tmp_path):
    """Without one nothing says the group of an input; where a row is one group there is no need, nor where desc_act is false."""
    for group, desc_act, read in ((64, True, False), (64, False, True), (-1, True, True)):
        parts = gptq(*drawn(N, K, K if group == -1 else group))
        del parts["g_idx"]
        found, checkpoint = matrix(tmp_path / f"{group}-{desc_act}", parts, config("gptq", group, desc_act=desc_act), gptq_zeros="v1")
        assert (found is not None) == read
        if not read:
            with pytest.raises(CheckpointError, match=r"a\.qweight has no g_idx beside it\."):
                checkpoint.tensors["a.weight"]


@pytest.mark.parametrize("scattered", [False, True])
def test_scales_that_are_no_numbers_are_found_when_they_are_asked_for(tmp_path, scattered):
    """NaN and infinities, of groups in a row and of scattered ones."""
    ints, scales, zeros = drawn(N, K, 64)
    g_idx = (np.arange(K) // 64 + 1) % (K // 64) if scattered else None
    for i, bad in enumerate((np.nan, np.inf)):
        broken = scales.copy()
        broken[3, 1] = bad
        parts = gptq(ints, broken, zeros, "v1", 4, g_idx)
        (_, _, array), _ = matrix(tmp_path / f"m{i}", parts, config("gptq", 64, desc_act=scattered), gptq_zeros="v1")
        with pytest.raises(CheckpointError, match=r": a has scales that are NaN or infinite\.$"):
            array.dequantize()


def test_packed_weights_without_a_word_of_their_packer(tmp_path):
    """They are refused, and nothing else is."""
    found, checkpoint = matrix(tmp_path / "m", gptq(*WHOLE), None)
    assert found is None
    with pytest.raises(CheckpointError, match=r"a\.qweight is not read: nothing says how it is packed: no quantization_config in"):
        checkpoint.tensors["a.weight"]


def test_the_option_is_for_gptqs_files(tmp_path):
    """A value that there is not, a file of another packer, and one that is not packed."""
    parts = {f"a.{name}": part for name, part in gptq(*WHOLE).items()}
    with pytest.raises(UsageError, match=r"gptq_zeros='v3'; legal: v1, v2\."):
        Checkpoint.open(folder(tmp_path / "m", parts, config("gptq", 64)), gptq_zeros="v3")
    for name, tensors, packed in (("awq", parts, config("awq", 64)), ("plain", {"a.weight": np.zeros((2, 2), np.float32)}, None)):
        with pytest.raises(UsageError, match=r"no weights of GPTQ's are in it; gptq_zeros is for those\."):
            Checkpoint.open(folder(tmp_path / name, tensors, packed), gptq_zeros="v1")
