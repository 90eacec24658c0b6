"""The reader: what is written is read again without a copy, and a damaged file is refused by its name."""

from __future__ import annotations

from pathlib import Path

import iron_core as iron
import numpy as np
import pytest
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint

from iron_acme.reader import AcmeFile, write

RNG = np.random.default_rng(0)
TENSORS = {
    "dense": RNG.standard_normal((3, 5)).astype(np.float32),
    "half": RNG.standard_normal(7).astype(iron.bfloat16),
    "packed": iron.Q8_0.quantize(RNG.standard_normal((4, 64)).astype(np.float32)),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.acme"
    write(path, TENSORS, {"model_type": "none"})
    return path


def test_iron_finds_the_reader(file: Path) -> None:
    """By what the file begins with, not by its name; its config and every bit come back."""
    read = Checkpoint.open(file.rename(file.with_suffix(".bin")))
    assert read.kind == "acme" and read.metadata == {"config": {"model_type": "none"}}
    assert list(read.tensors) == list(TENSORS)
    for name, tensor in TENSORS.items():
        shape, format, array = read.tensors[name]
        assert shape == tensor.shape and format.nbytes(shape) == tensor.nbytes
        assert np.array_equal(*(np.asarray(t.data if hasattr(t, "dequantize") else t).reshape(-1).view(np.uint8) for t in (array, tensor)))


def test_it_takes_nothing_else(tmp_path: Path) -> None:
    for head in (b"", b"{}", b"GGUF\3\0\0\0", b'{"other": 1,'):
        assert AcmeFile.sniff(tmp_path / "x", head) is False


@pytest.mark.parametrize("keep", [20, 100, -1])
def test_a_file_that_was_cut_short_is_refused(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=file.name):
        Checkpoint.open(file)


def test_tensors_outside_of_the_file_are_refused(file: Path) -> None:
    """A header is not believed."""
    file.write_bytes(file.read_bytes().replace(b'"offset": 64', b'"offset": 1 '))
    with pytest.raises(CheckpointError, match="half is bytes 1 to 15"):
        Checkpoint.open(file)


def test_a_file_without_tensors_is_one(tmp_path: Path) -> None:
    write(tmp_path / "empty", {})
    assert Checkpoint.open(tmp_path / "empty").tensors == {}
