"""AWQ's files, as AutoAWQ's gemm has them: the exact numbers, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.linear import nibbles
from tests.lm.checkpoints.packers import BF16, awq, config, drawn, folder, numbers

N, K = 48, 256
WHOLE = drawn(N, K, 64)


def matrix(path, parts, packed, **options):
    """The one matrix of a folder, and the checkpoint."""
    checkpoint = Checkpoint.open(folder(path, {f"a.{name}": part for name, part in parts.items()}, packed, **options))
    return checkpoint.tensors.get("a.weight", checkpoint.tensors.get("a")), checkpoint


@pytest.mark.parametrize("scale", [np.float16, BF16, np.float32])
@pytest.mark.parametrize("group", [32, 64, 128, -1])
def test_numbers_are_read_exactly(tmp_path, group, scale):
    """Every zero point, whatever the group."""
    ints, scales, _ = drawn(N, K, K if group == -1 else group, scale=scale)
    zeros = np.arange(scales.size).reshape(scales.shape) % 16
    (shape, format, array), checkpoint = matrix(tmp_path / "m", awq(ints, scales, zeros), config("awq", group))
    assert shape == (N, K) and str(format).startswith(f"uint4_group{K if group == -1 else group}")
    assert np.array_equal(array.dequantize(), numbers(ints, scales, zeros))
    assert "AWQ, 4 bits, " in checkpoint.file.described and set(checkpoint.tensors.names) == {"a.weight"}


def test_matrices_in_one_tensor_and_parts_in_several_files(tmp_path):
    """As those of experts may be."""
    made = [awq(*drawn(N, K, 64, seed=seed)) for seed in range(3)]
    parts = {name: np.stack([one[name] for one in made]) for name in made[0]}
    (shape, _, array), _ = matrix(tmp_path / "m", parts, config("awq", 64), shards=2)
    assert shape == (3, N, K)
    assert np.array_equal(array.dequantize(), np.stack([numbers(*drawn(N, K, 64, seed=seed)) for seed in range(3)]))


def test_nibbles_stay_in_their_row():
    """Eight of each word, the lowest first."""
    words = np.array([[0x76543210, 0x0FEDCBA9], [-1, 0]], np.int32)
    assert nibbles(words).tolist() == [[*range(8), *range(9, 16), 0], [15] * 8 + [0] * 8]


def test_older_files_have_names_of_their_own(tmp_path):
    """w_bit and q_group_size, in quant_config.json."""
    path = folder(tmp_path / "m", {f"a.{name}": part for name, part in awq(*WHOLE).items()}, None)
    (path / "quant_config.json").write_text('{"zero_point": true, "q_group_size": 64, "w_bit": 4, "version": "GEMM"}')
    assert np.array_equal(Checkpoint.open(path).tensors["a.weight"][2].dequantize(), numbers(*WHOLE))


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (dict(bits=8), r"quantization_config: 8 bits\. Legal: 4\."),
        (dict(version="gemv"), r"version is 'gemv', whose words have another order\. Legal: gemm\."),
        (dict(version="gemv_fast"), r"version is 'gemv_fast'"),
        (dict(version=2), r"version is 2,"),
        (dict(zero_point=False), r"zero_point is false\. Legal: true\."),
        (dict(group_size="64"), r"group_size is '64'; legal: a whole number"),
        (dict(group_size=96), r"has rows of 256, which are not whole groups of 96"),
        (dict(group_size=128), r"has scales of shape \[4, 48\]\. Legal: \[2, 48\]"),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path, packed, says):
    """Other versions, bits and groups."""
    found, checkpoint = matrix(tmp_path / "m", awq(*WHOLE), config("awq", 64, **packed))
    assert found is None
    with pytest.raises(CheckpointError, match=f"/m: a.qweight .*{says}"):
        checkpoint.tensors["a.weight"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(qzeros=None), r"has no qzeros beside it"),
        (dict(scales=None), r"has no scales beside it"),
        (dict(qzeros=np.zeros((4, N), np.int32)), r"has qzeros of shape \[4, 48\]\. Legal: \[4, 6\]"),
        (dict(scales=np.ones((N, 4), np.float16)), r"has scales of shape \[48, 4\]\. Legal: \[4, 48\]"),
        (dict(qweight=np.zeros((K, 0), np.int32)), r"has qweight of shape \[256, 0\]\. Legal: 2 or 3 axes, none empty"),
        (dict(qweight=np.zeros((K, 6), np.int64)), r"has qweight of int64\. Legal: int32"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(tmp_path, change, says):
    """One error each, of the matrix by its name."""
    parts = {name: part for name, part in (awq(*WHOLE) | change).items() if part is not None}
    found, checkpoint = matrix(tmp_path / "m", parts, config("awq", 64))
    assert found is None
    with pytest.raises(CheckpointError, match=f"/m: a.qweight {says}"):
        checkpoint.tensors["a.weight"]
