"""Weights of packers that are not read: one reason, which names the packer, in the place of names that would be missing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from tests.q4nx.folders import container

N, K = 4, 128
#: By quant_method, what each stores of a matrix: (dtype, shape, bytes of a number) by ending.
STORED: dict[str, dict[str, tuple[str, list[int], int]]] = {
    "fp8": {"weight": ("F8_E4M3", [N, K], 1), "weight_scale_inv": ("F32", [1, 1], 4)},
    "fbgemm_fp8": {"weight": ("F8_E4M3", [N, K], 1), "weight_scale": ("F32", [N, 1], 4)},
    "compressed-tensors": {
        "weight_packed": ("I32", [N, K // 8], 4), "weight_scale": ("BF16", [N, 1], 2), "weight_shape": ("I64", [2], 8),
        "weight_zero_point": ("I32", [1, 1], 4),
    },
    "bitsandbytes": {
        "weight": ("U8", [N * K // 2, 1], 1), "weight.absmax": ("U8", [8], 1), "weight.quant_map": ("F32", [16], 4),
        "weight.nested_absmax": ("F32", [1], 4), "weight.quant_state.bitsandbytes__nf4": ("U8", [70], 1),
    },
}  # fmt: skip


def opened(path, stored: dict[str, tuple[str, list[int], int]], said: dict[str, Any] | None) -> Checkpoint:
    """A folder of two such matrices and a norm."""
    path.mkdir()
    one = {name: (dtype, shape, bytes(int(np.prod(shape)) * size)) for name, (dtype, shape, size) in stored.items()}
    raw = {f"{at}.{name}": made for at in "ab" for name, made in one.items()}
    container(path / "model.safetensors", raw | {"norm.weight": ("F32", [K], bytes(4 * K))})
    (path / "config.json").write_text(json.dumps({"model_type": "llama"} | ({} if said is None else {"quantization_config": said})))
    return Checkpoint.open(path)


@pytest.mark.parametrize("method", STORED)
def test_one_line_names_the_packer_and_what_is_read(tmp_path, method):
    """No matter how many matrices; the others' tensors are there."""
    checkpoint = opened(tmp_path / "m", STORED[method], {"quant_method": method})
    assert checkpoint.tensors.names == {"a.weight", "b.weight", "norm.weight"} and list(checkpoint.tensors) == ["norm.weight"]
    with pytest.raises(CheckpointError) as found:
        checkpoint.take({"x": (N, K), "y": (N, K), "z": (K,)}, {"x": "a.weight", "y": "b.weight", "z": "norm.weight"})
    reason = f"quant_method is '{method}', which is not read. Legal: gptq, awq."
    assert str(found.value) == f"{tmp_path / 'm'}: config.json: quantization_config: {reason}"


def test_plain_weights_are_read_whatever_config_json_says(tmp_path):
    """Who made numbers of them again may have left the entry."""
    checkpoint = opened(tmp_path / "m", {"weight": ("F32", [N, K], 4)}, {"quant_method": "fp8"})
    assert set(checkpoint.tensors) == {"a.weight", "b.weight", "norm.weight"}


def test_scales_beside_plain_weights_are_told_by_their_names(tmp_path):
    """Where nothing names a packer they are tensors that a model has none for."""
    checkpoint = opened(tmp_path / "m", {"weight": ("F32", [N, K], 4), "weight_scale": ("F32", [N, 1], 4)}, None)
    with pytest.raises(CheckpointError, match=r"a\.weight_scale is none this model has; b\.weight_scale is none"):
        checkpoint.take({"x": (N, K), "y": (N, K), "z": (K,)}, {"x": "a.weight", "y": "b.weight", "z": "norm.weight"})
