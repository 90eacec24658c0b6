"""Safetensors files are read as the safetensors package writes them, and damaged ones are refused in one line."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.safetensors import SafetensorsFile
from iron_lm.checkpoints.sources import Name


def write(path: Path, tensors: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    save_file(tensors, str(path))


def raw(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file with this header, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_numbers_are_what_was_written(tmp_path: Path) -> None:
    """float32, float16 and bfloat16 come back bit for bit, over the mapped file."""
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "b": rng.standard_normal(7).astype(np.float16),
        "c": rng.standard_normal((2, 2, 2)).astype(ml_dtypes.bfloat16),
    }
    write(tmp_path / "model.safetensors", tensors)
    found = SafetensorsFile.open(tmp_path / "model.safetensors").tensors
    assert set(found) == set(tensors)
    for name, want in tensors.items():
        shape, format, array = found[name]
        assert shape == want.shape and format.dtype == want.dtype
        np.testing.assert_array_equal(array.view(np.uint8), want.view(np.uint8))


def test_tensors_of_other_dtypes_are_refused_and_keep_no_others_from_being_read(tmp_path: Path) -> None:
    """Positions, masks and float64 among them: each says why when it is asked for."""
    others = {"ids": np.arange(3), "mask": np.ones((2, 2), bool), "double": np.ones(2)}
    write(tmp_path / "model.safetensors", {"a": np.ones(4, np.float32), **others})
    found = SafetensorsFile.open(tmp_path).tensors
    assert set(found) == {"a"} and set(found.refused) == set(others)
    np.testing.assert_array_equal(found["a"][2], np.ones(4, np.float32))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: tensor ids is 'I64'\. Legal: F32, F16, BF16\."):
        found["ids"]
    with pytest.raises(KeyError):
        found["absent"]
    with pytest.raises(CheckpointError) as told:
        Checkpoint.open(tmp_path).take({"x": (3,), "y": (2,)}, {"x": Name("ids"), "y": Name("double")})
    says = "model.safetensors: tensor {} is '{}'. Legal: F32, F16, BF16; "
    both = says.format("ids", "I64") + says.format("double", "F64")
    assert str(told.value) == f"{tmp_path}: {both}a is none this model has; and 1 more."


@pytest.mark.parametrize(
    ("header", "data", "says"),
    [
        (b"{not json", b"", "header"),
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, b"\0" * 8, "cut short"),
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}}, b"\0" * 16, "its place has 12"),
        ({"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 16]}}, b"\0" * 8, "cut short"),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"\0" * 8, "no tensor has"),
        ({"a": {"dtype": "F32", "shape": [0, 1 << 40, 1 << 40], "data_offsets": [0, 0]}}, b"\0" * 8, "no tensor has"),
        ({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 8, "Legal: F32"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": 4}}, b"\0" * 8, "no tensor has"),
        ({"a\nb": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 8, "names no tensor"),
        ({"a": {"shape": [1]}}, b"", "header"),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            b"\0" * 16,
            "overlaps",
        ),
    ],
)
def test_damage_is_refused_in_one_line(tmp_path: Path, header: Any, data: bytes, says: str) -> None:
    """Each kind of damage is named in a single line that begins with the file."""
    path = raw(tmp_path / "bad.safetensors", header, data)
    with pytest.raises(CheckpointError, match=says) as caught:
        SafetensorsFile.open(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_a_header_of_2_to_the_63_bytes_is_refused(tmp_path: Path) -> None:
    """A claimed length beyond the format's limit allocates nothing."""
    path = tmp_path / "huge.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 63) + b"{}")
    with pytest.raises(CheckpointError, match="claims"):
        SafetensorsFile.open(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["F32", "F16", [0, 4], [4, 8]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ENTRY = st.fixed_dictionaries({"dtype": st.just("F32") | JSON, "shape": st.just([1]) | JSON, "data_offsets": st.just([0, 4]) | JSON})


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.dictionaries(st.text(max_size=3), ENTRY | JSON, max_size=3))
def test_any_header_opens_or_is_refused_in_one_line(tmp_path: Path, header: dict[str, Any]) -> None:
    """Whatever JSON a header holds, the file opens or is a CheckpointError of one line."""
    path = raw(tmp_path / "any.safetensors", header, b"\0" * 8)
    try:
        SafetensorsFile.open(path)
    except CheckpointError as error:
        assert "\n" not in str(error)
