"""What is made of a checkpoint is known by the files of its tensors, how they are read, and the bytes of those in no file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from iron_core import Q4_0, Q8_0, BlockQuant, Dense, Format
from iron_lm.checkpoints.identity import identity
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.safetensors import SafetensorsFile
from iron_lm.checkpoints.widening import Merged

F32 = Dense(np.float32)


def known(file: Any = None, reader: str = "iron-lm:safetensors", **tensors: Any) -> Any:
    entries = {name: (array.shape, format, array) for name, (format, array) in tensors.items()}
    return identity(SimpleNamespace(file=file, tensors=entries, reader=reader))


def mapped(path: Path, numbers: Any) -> np.ndarray:
    path.write_bytes(np.asarray(numbers, np.float32).tobytes())
    return MappedFile(path).view(0, path.stat().st_size, "numbers").view(np.float32)


def test_every_file_that_a_part_lies_in_counts(tmp_path: Path) -> None:
    """Of a tensor in shards all of them."""
    parts = [mapped(tmp_path / name, [1, 2]) for name in "ab"]
    before = known(w=(F32, Merged(parts, 0)))
    assert [Path(file.path).name for file in before.files] == ["a", "b"]
    (tmp_path / "b").unlink()
    again = known(w=(F32, Merged([parts[0], mapped(tmp_path / "b", [1, 3])], 0)))
    assert again.files[0] == before.files[0] and again.digest != before.digest


def test_what_lies_in_no_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    """A copy of a part of one, too, and packed tensors."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert known(w=(F32, x)).files == () and known(w=(F32, x)) == known(w=(F32, x.copy())) != known(w=(F32, x + 1))
    file = mapped(tmp_path / "a", [1, 2])
    assert len({known(v=(F32, file), w=(F32, y)).digest for y in (x, x + 1)}) == 2
    blocks = Q8_0.quantize(np.ones((1, 32), np.float32))
    assert known(w=(Q8_0, blocks)) != known(w=(Q8_0, Q8_0.quantize(np.full((1, 32), 2.0))))


def test_how_the_same_bytes_are_read_counts(tmp_path: Path) -> None:
    """Name, format and shape of each tensor, for not every file says them itself; and by whom."""
    raw = mapped(tmp_path / "a", np.zeros(9))[:].view(np.uint8)
    ways = [known(w=(Q4_0, raw)), known(w=(Q8_0, raw)), known(v=(Q4_0, raw)), known(w=(Q4_0, raw.reshape(2, 18)))]
    ways.append(known(reader="iron-acme:odd", w=(Q4_0, raw)))
    assert len({one.digest for one in ways}) == 5 and len({one.files for one in ways}) == 1


def test_who_makes_numbers_of_them_is_told() -> None:
    """The packages of the reader and of each format; a format's layout is part of what it is known by, whatever it is called."""

    class Odd(Format):
        name, block, block_bytes = "odd", (1, 1), 1

    Odd.__module__ = "acme_formats.odd"
    raw = np.zeros((1, 32), np.uint8)
    found = known(file=SafetensorsFile.__new__(SafetensorsFile), v=(Odd(), raw), w=(F32, raw.view(np.float32)))
    assert found.packages == ("acme_formats", "iron_core", "iron_lm")
    one, other = (BlockQuant("acme.q4", bits=4, group=32, scale=np.float16, zero=zero) for zero in (7, 8))
    assert known(w=(one, raw)).digest != known(w=(other, raw)).digest
