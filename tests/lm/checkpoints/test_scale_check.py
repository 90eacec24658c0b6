"""Scales of blocks are looked at once for a file, and again where that is another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints import scale_check
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.scale_check import ScaleCheck


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The tensors that were looked at, from now on; however few bytes they are, it is remembered."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(scale_check, "WORTH_KEEPING", 1)
    look, seen = ScaleCheck.__call__, []

    def counted(self: ScaleCheck, array: Any) -> bool:
        seen.append(array)
        return look(self, array)

    monkeypatch.setattr(ScaleCheck, "__call__", counted)
    return seen


def take(path: Path, tiny: Any) -> None:
    from iron_llama.model import Llama
    from iron_lm import loading

    loading.load(Llama, str(path), max_seq_len=64)


def test_a_file_is_looked_at_once(tiny: Any, tiny_gguf: Any, looks: list[Any]) -> None:
    """By the first process that opens it; one that was written to is looked at again."""
    path = tiny_gguf("Q4_1")
    take(path, tiny)
    assert looks
    looks.clear()
    take(path, tiny)
    assert not looks
    os.utime(path)
    take(path, tiny)
    assert looks


def test_what_was_refused_is_not_remembered(tiny: Any, tiny_gguf: Any, looks: list[Any]) -> None:
    """A scale that is no number is found each time, though it became one after the file was looked at."""
    path = tiny_gguf("Q4_1")
    take(path, tiny)
    tensor = next(array for _, _, array in Checkpoint.open(path).tensors.values() if hasattr(array, "format"))
    raw = path.read_bytes()
    at = raw.index(np.ascontiguousarray(tensor.data).tobytes()[:64])
    path.write_bytes(raw[:at] + np.array([np.nan], np.float16).tobytes() + raw[at + 2 :])
    for _ in range(2):
        with pytest.raises(CheckpointError, match="scales that are NaN or infinite"):
            take(path, tiny)


def test_other_tensors_of_a_file_are_looked_at(tiny: Any, tiny_gguf: Any, looks: list[Any]) -> None:
    """What was remembered is of the tensors that a model takes, and of who read them."""
    file = Checkpoint.open(tiny_gguf("Q4_1"))
    packed = [name for name, (_, _, array) in file.tensors.items() if hasattr(array, "format")]
    first = scale_check.LookedAt(file.tensors, packed[:3], file.reader)
    first.keep()
    assert scale_check.LookedAt(file.tensors, packed[:3], file.reader).before
    for names, reader in ((packed[:4], file.reader), (packed[1:4], file.reader), (packed[:3], "another")):
        assert not scale_check.LookedAt(file.tensors, names, reader).before
