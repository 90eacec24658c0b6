"""GGUF files are read as the gguf package writes them, and damaged ones are refused in one line."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.gguf import GGUFFile

gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")

TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file with a tensor of every type Iron takes."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("answer", 42)
    writer.add_array("words", ["a", "été", "", "日本"])
    writer.add_array("numbers", [1.5, 2.5])
    for kind in TYPES:
        values = rng.standard_normal((6, 64)).astype(np.float32)
        quant = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(kind, gguf.quantize(values, quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_is_what_was_written(file: Path) -> None:
    """Scalars, arrays and strings come back as they went in."""
    metadata = GGUFFile.open(file).metadata
    assert metadata["answer"] == 42
    assert metadata["words"].decode() == ["a", "été", "", "日本"]
    assert metadata["numbers"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_equal_the_gguf_packages(file: Path, kind: str) -> None:
    """Every type dequantises to the package's own numbers, bit for bit."""
    reader = gguf.GGUFReader(str(file))
    theirs = next(t for t in reader.tensors if t.name == kind)
    want = gguf.dequantize(theirs.data, theirs.tensor_type).reshape(6, 64)
    shape, _, array = GGUFFile.open(file).tensors[kind]
    got = array.dequantize() if hasattr(array, "dequantize") else np.asarray(array).astype(np.float32)
    assert shape == (6, 64)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"))
def test_our_quantization_is_theirs(kind: str) -> None:
    """Rounding to a block format gives the package's bytes."""
    from iron_core.declare import formats

    values = np.random.default_rng(1).standard_normal((5, 96)).astype(np.float32)
    ours = getattr(formats, kind).quantize(values)
    theirs = gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(ours.data.reshape(-1), np.asarray(theirs).view(np.uint8).reshape(-1))


def test_a_tensor_is_a_view_of_the_file(file: Path) -> None:
    """No tensor is copied: each lies in the mapped bytes."""
    opened = GGUFFile.open(file)
    for _, _, array in opened.tensors.values():
        assert np.shares_memory(array.data if hasattr(array, "format") else array, opened._file.bytes)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_file_cut_anywhere_is_refused(file: Path, data: st.DataObject) -> None:
    """However short the file, up to the padding at its end, opening it is a CheckpointError that names it."""
    whole = file.read_bytes()
    cut = file.parent / "cut.gguf"
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 32))])
    with pytest.raises(CheckpointError, match=r"cut\.gguf"):
        GGUFFile.open(cut)


@pytest.mark.parametrize("field", (8, 16))
def test_a_hostile_count_is_refused_at_once(file: Path, field: int) -> None:
    """2^63 tensors or metadata entries are damage, not a reason to allocate."""
    raw = bytearray(file.read_bytes())
    raw[field : field + 8] = struct.pack("<Q", 1 << 63)
    bad = file.parent / "hostile.gguf"
    bad.write_bytes(raw)
    with pytest.raises(CheckpointError, match="damaged"):
        GGUFFile.open(bad)


@settings(max_examples=300, deadline=None)
@given(damage=st.lists(st.tuples(st.integers(4, 700), st.binary(min_size=1, max_size=8)), min_size=1, max_size=3))
def test_damage_anywhere_in_the_header_is_refused_in_one_line(file: Path, damage: list[tuple[int, bytes]]) -> None:
    """Whatever bytes are overwritten, the file opens, and its tensors are read, or is a CheckpointError of one line."""
    data = bytearray(file.read_bytes())
    for at, there in damage:
        data[at : at + len(there)] = there
    bad = file.parent / "bad.gguf"
    bad.write_bytes(data)
    try:
        opened = GGUFFile.open(bad)
    except CheckpointError as error:
        assert "\n" not in str(error)
    else:
        for _, _, array in opened.tensors.values():
            np.isfinite(np.asarray(array.data if hasattr(array, "format") else array))


def header_of(metadata: bytes = b"", pairs: int = 0, tensor: bytes = b"") -> bytes:
    """A GGUF of one metadata entry or tensor, given as bytes, and nothing else."""
    return b"GGUF" + struct.pack("<IQQ", 3, bool(tensor), pairs) + metadata + tensor + bytes(64)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (header_of(struct.pack("<Q1sI", 1, b"k", 9) + struct.pack("<IQ", 9, 1) * 5000, 1), "nests arrays"),
        (header_of(struct.pack("<Q3sI", 3, b"a\nb", 4) + bytes(4), 1), "names nothing"),
        (header_of(struct.pack("<Q17sIQ1s", 17, b"general.alignment", 8, 1, b"x"), 1), "power of two"),
        (header_of(tensor=struct.pack("<Q1sIQIQ", 1, b"w", 1, 0, 0, 0)), "1 or more along each axis"),
        (header_of(tensor=struct.pack("<Q1sIQIQ", 1, b"w", 1 << 31, 4, 0, 0)), "1 to 4"),
        (header_of(tensor=struct.pack("<Q1sIQIQ", 1, b"w", 1, 4, 0, 1 << 62)), "cut short"),
    ],
)
def test_what_no_writer_writes_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """Arrays in arrays without end, names of two lines, empty tensors, places beyond the file: each is named."""
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        GGUFFile.open(path)


def test_a_type_iron_does_not_take_is_named(tmp_path: Path) -> None:
    """Asking for a tensor of another type says which type it is and which are legal."""
    path = tmp_path / "k.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    quant = gguf.GGMLQuantizationType.TQ2_0
    writer.add_tensor("w", gguf.quantize(np.ones((2, 256), np.float32), quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"w is TQ2_0.*Q4_0"):
        GGUFFile.open(path).tensors["w"]


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """A file no reader recognises names the readers there are; a missing one says so."""
    (tmp_path / "notes.txt").write_text("hello, this is not a checkpoint at all")
    with pytest.raises(CheckpointError, match="gguf"):
        Checkpoint.open(tmp_path / "notes.txt")
    with pytest.raises(CheckpointError, match="no such file"):
        Checkpoint.open(tmp_path / "absent.gguf")
