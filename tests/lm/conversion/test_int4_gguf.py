"""`iron checkpoints convert --int4` of a GGUF: matrices of some parts of a model in Q4_1, and everything else as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iron_core import Q4_1
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.conversion import gguf_folder
from iron_lm.conversion.conversion import Conversion
from tests.families.conftest import FAMILIES
from tests.lm.conversion.rounded_models import Source, check_numbers, check_run, tiny_of


@pytest.mark.parametrize("name", ["qwen2_moe", "qwen3_moe", "qwen3_5_moe", "qwen3"])
def test_a_gguf_stays_one(name: str, tmp_path: Path) -> None:
    """Matrices of the roles become Q4_1 as GGUF's rule has it; metadata byte for byte, other tensors bit for bit; and it runs so."""
    family = tiny_of(name, tmp_path)
    source = Source(family.gguf("F16"), FAMILIES[name])
    roles = source.roles
    for asked in (*([[role] for role in roles]), list(roles)):
        out = tmp_path / "-".join(["out", *asked])
        Conversion(source.path, out, int4=asked).run()
        assert [path.name for path in out.iterdir()] == [source.path.name]
        before, after = (Checkpoint.open(path).file for path in (source.path, out))
        (old,), (new,) = before.layouts, after.layouts
        assert old.file.read(0, old.pairs_end, "") == new.file.read(0, new.pairs_end, "")
        assert [(one.name, one.shape) for one in old.places] == [(one.name, one.shape) for one in new.places]
        paths = {path for role in asked for path in roles[role]}
        stayed = 0
        for was, now in zip(old.places, new.places, strict=True):
            if was.kind == now.kind:
                stayed += 1
                assert np.array_equal(old.file.bytes[was.begin : was.end], new.file.bytes[now.begin : now.end])
        assert 0 < stayed < len(old.places)
        loaded = check_numbers(source, out, paths, Q4_1)
    check_run(source, out, loaded)


def test_a_gguf_is_what_llama_cpps_reader_takes(tmp_path: Path) -> None:
    """The public package's reader finds the same tensors, with the same numbers."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, a reader of another's, is not installed")
    family = tiny_of("qwen2_moe", tmp_path)
    path = family.gguf("F16")
    Conversion(path, tmp_path / "out", int4=["experts"]).run()
    theirs = {one.name: one for one in gguf.GGUFReader(tmp_path / "out" / path.name).tensors}
    ours = Checkpoint.open(tmp_path / "out").tensors
    assert set(theirs) == set(ours)
    for name, (shape, format, array) in ours.items():
        numbers = gguf.dequantize(theirs[name].data, theirs[name].tensor_type).reshape(shape)
        np.testing.assert_array_equal(numbers, array.dequantize() if format.packed else np.asarray(array).astype(np.float32))


def test_gguf_in_several_files_stays_in_them(tmp_path: Path) -> None:
    """Each has its own header; together they are what one file becomes."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    whole = tiny_of("qwen2_moe", tmp_path).gguf("F16")
    reader = gguf.GGUFReader(whole)
    source = tmp_path / "split"
    source.mkdir()
    for part in range(2):
        writer = gguf.GGUFWriter(str(source / f"m-{part + 1:05d}-of-00002.gguf"), "qwen2moe")
        if part == 0:
            for key, field in reader.fields.items():
                if key.startswith("qwen2moe."):
                    value = field.contents()
                    (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
        writer.add_uint16("split.count", 2)
        writer.add_uint16("split.no", part)
        for one in reader.tensors[part::2]:
            writer.add_tensor(one.name, np.array(one.data), raw_dtype=one.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    for path, out in ((whole, "one"), (source, "two")):
        Conversion(path, tmp_path / out, int4=["experts", "attention"]).run()
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == sorted(path.name for path in source.iterdir())
    one, two = (Checkpoint.open(tmp_path / name).tensors for name in ("one", "two"))
    assert set(one) == set(two) and {str(format) for _, format, _ in two.values()} == {"float16", "float32", "q4_1"}
    for name, (shape, format, array) in one.items():
        assert two[name][:2] == (shape, format)
        stored = [found.data if format.packed else found for found in (array, two[name][2])]
        assert stored[0].tobytes() == stored[1].tobytes()


def test_some_rows_of_a_gguf_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a tensor has, all its experts together; and they are the same numbers."""
    path = tiny_of("qwen2_moe", tmp_path).gguf("F16")
    Conversion(path, tmp_path / "once", int4=["experts"]).run()
    monkeypatch.setattr(gguf_folder, "_PIECE", 256)
    one = Conversion(path, tmp_path / "out", int4=["experts"])
    rounded = [piece for piece in one.output.every if "_exps" in piece.name]
    assert rounded and all(len(part) <= Q4_1.nbytes((256,)) for piece in rounded for part in piece.parts())
    one.run()
    assert (tmp_path / "out" / path.name).read_bytes() == (tmp_path / "once" / path.name).read_bytes()


def test_a_tensor_of_an_unknown_type_stays_as_it_lies(tmp_path: Path) -> None:
    """Up to where the next begins, or the file ends."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    whole = tiny_of("qwen2_moe", tmp_path).gguf("F16")
    reader = gguf.GGUFReader(whole)
    writer = gguf.GGUFWriter(str(tmp_path / "odd.gguf"), "qwen2moe")
    for key, field in reader.fields.items():
        if key.startswith("qwen2moe."):
            value = field.contents()
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    odd = np.arange(-32, 32, dtype=np.int8)
    writer.add_tensor("first", odd)
    for one in reader.tensors:
        writer.add_tensor(one.name, np.array(one.data), raw_dtype=one.tensor_type)
    writer.add_tensor("last", odd[::-1].copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    Conversion(tmp_path / "odd.gguf", tmp_path / "out", int4=["attention"]).run()
    theirs = {one.name: one.data for one in gguf.GGUFReader(tmp_path / "out" / "odd.gguf").tensors}
    assert np.array_equal(theirs["first"], odd) and np.array_equal(theirs["last"], odd[::-1])
    assert set(Checkpoint.open(tmp_path / "out").tensors.refused) == {"first", "last"}
