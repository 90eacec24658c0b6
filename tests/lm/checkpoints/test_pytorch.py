"""pytorch_model.bin: what torch.save wrote is read as views of the file, by the names of the state dict, and nothing in it is run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from iron_core.cli import main
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.pytorch import PyTorchFile
from iron_lm.checkpoints.recognise import describe
from tests.lm.hostile import Runs, refused

TORCH = Path(__file__).parents[2] / "data" / "torch"  # written by torch 2.13
#: Of tied.bin: tensors of dtypes that Iron does not take, of numbers that lie in one place, of none.
REFUSED = {"position_ids", "mask", "float64", "codes", "float8", "twice", "empty"}


def mapped(array: np.ndarray) -> bool:
    """Is the array a view of a mapped file?"""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return hasattr(base.obj if isinstance(base, memoryview) else base, "origin")


@pytest.fixture
def tied() -> Any:
    return PyTorchFile.open(TORCH / "tied.bin").tensors


def test_numbers_are_those_that_torch_wrote(tied: Any) -> None:
    """Of a module's state dict, buffers and a number alone among them: shapes, dtypes and numbers, over the mapped file."""
    stored = json.loads((TORCH / "tied.json").read_text())
    assert set(tied) == set(stored) - REFUSED
    for name, (shape, format, array) in tied.items():
        assert shape == array.shape == np.shape(stored[name]) and format.dtype == array.dtype
        np.testing.assert_array_equal(array.astype(np.float32), np.array(stored[name], np.float32))
        assert mapped(array) and not array.flags.writeable
    assert {str(format) for _, format, _ in tied.values()} == {"float32", "float16", "bfloat16"}


def test_tied_names_are_one_memory(tied: Any) -> None:
    """The head and the embedding, saved once."""
    head, embedding = tied["head.weight"][2], tied["embed.weight"][2]
    assert head.__array_interface__["data"] == embedding.__array_interface__["data"]


def test_transposed_tensors_and_slices_are_views_with_strides(tied: Any) -> None:
    """Nothing is copied to lay them out."""
    assert tied["conv"][2].strides == (2, 8) and tied["columns"][2].strides == (16, 4)


@pytest.mark.parametrize(
    ("shape", "strides"), [((4, 1), (1, 2)), ((1, 4), (0, 1)), ((1, 4), (1 << 40, 1)), ((1, 1), (0, 0)), ((2, 2), (1, 2))]
)
def test_an_axis_of_one_may_have_any_stride(tmp_path: Path, pth: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """It is never gone along."""
    pickled = pth.pickled({"w": pth.tensor("0", "FloatStorage", 4, 0, shape, strides)})
    numbers = np.arange(4, dtype=np.float32)
    found = PyTorchFile.open(pth.archive(tmp_path / "model.bin", pickled, {"0": numbers.tobytes()})).tensors["w"][2]
    want = numbers[: found.size].reshape(shape, order="F")
    np.testing.assert_array_equal(found, want)


def test_other_tensors_are_refused_when_they_are_asked_for(tied: Any) -> None:
    """Positions, masks and the rest keep no others from being read, and each says why."""
    assert set(tied.refused) == REFUSED
    for name, says in {"position_ids": "is a LongStorage", "mask": "is a BoolStorage", "codes": "is a uint16", "twice": "strides"}.items():
        with pytest.raises(CheckpointError, match=rf"tied\.bin: tensor {name} .*{says}.*egal: "):
            tied[name]
    with pytest.raises(KeyError):
        tied["absent"]
    assert describe(Checkpoint.open(TORCH / "tied.bin")).startswith(
        "PyTorch file · no architecture named · 6 tensors (3 float32, 2 bfloat16, 1 float16), and 7 not read · "
    )


@pytest.fixture
def folder(tiny: Any, pth: Any, tmp_path: Path) -> Path:
    """The tiny Llama in a pytorch_model.bin whose matrices are stored transposed."""
    arrays = {name: np.asarray(array) for name, (_, _, array) in tiny.checkpoint.tensors.items()}
    pth.save(tmp_path / "pytorch_model.bin", {name: np.asfortranarray(array) for name, array in arrays.items()})
    shutil.copy(tiny.checkpoint.path / "config.json", tmp_path)
    return tmp_path


def test_a_model_of_transposed_tensors_is_the_same_model(tiny: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It answers as the safetensors do."""
    matrices = [array for _, _, array in Checkpoint.open(folder).tensors.values() if array.ndim > 1]
    assert len(matrices) == 16 and not any(array.flags.c_contiguous for array in matrices)
    found = []
    for path in (folder, tiny.checkpoint.path):
        assert main(["run", "llama", str(path), "--num-tokens", "24", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["ids"])
    assert found[0] == found[1] and len(found[0]) == 24


def test_where_there_are_safetensors_too_they_are_read(tiny: Any, folder: Path) -> None:
    """Unless the other file is named."""
    shutil.copy(tiny.checkpoint.path / "model.safetensors", folder)
    assert Checkpoint.open(folder).kind == "safetensors"
    assert Checkpoint.open(folder / "pytorch_model.bin").kind == "pytorch"


def test_without_config_json_the_shape_is_not_guessed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As for safetensors."""
    (folder / "config.json").unlink()
    assert main(["run", "llama", str(folder)]) == 2
    assert "no config.json beside it" in capsys.readouterr().err


def test_which_files_are_recognised(tmp_path: Path, pth: Any) -> None:
    """By name, or by what torch.save writes first; Meta's shards and other zip files and .bin files are not its."""
    pth.save(tmp_path / "model.pt", {"a": np.ones(4, np.float32)})
    with zipfile.ZipFile(tmp_path / "other.bin", "w") as zipped:
        zipped.writestr("notes/text", "nothing of the kind")
    for name, its in {
        "model.pt": True, "pytorch_model.bin": True, "pytorch_model-00001-of-00002.bin": True, PyTorchFile.index: True,
        "other.bin": False, "consolidated.00.pth": False,
    }.items():  # fmt: skip
        if not (tmp_path / name).exists():
            shutil.copy(tmp_path / "model.pt", tmp_path / name)
        assert PyTorchFile.sniff(tmp_path / name, (tmp_path / name).read_bytes()[:64]) is its, name


@pytest.mark.parametrize(
    ("name", "says"),
    [("module.pth", "names torch.nn.modules.linear.Linear, which is no part of a tensor"), ("legacy.pth", "torch before 1.6")],
)
def test_other_files_of_torch_are_refused(tmp_path: Path, name: str, says: str) -> None:
    """A whole module, the format before 1.6."""
    shutil.copy(TORCH / name, tmp_path / "pytorch_model.bin")
    refused(rf"pytorch_model\.bin: .*{says}", lambda: Checkpoint.open(tmp_path))


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_a_pickle_names_is_run(tmp_path: Path, pth: Any, protocol: int) -> None:
    """Whatever the protocol: the file it would have made is not there."""
    mark = tmp_path / "was run"
    pth.archive(tmp_path / "pytorch_model.bin", pickle.dumps({"w": Runs(os.system, f"touch '{mark}'")}, protocol), {})
    refused(r"pytorch_model\.bin: .*(which is no part of a tensor|pickle instruction|damaged)", lambda: Checkpoint.open(tmp_path))
    assert not mark.exists()


@pytest.mark.parametrize(("name", "legal"), [("a", True), ("a" * 1023, True), ("a" * 1024, False), ("", False), ("a\nb", False)])
def test_a_name_is_a_line(tmp_path: Path, pth: Any, name: str, legal: bool) -> None:
    """Of 1 to 1023 characters that print."""
    path = pth.save(tmp_path / "model.bin", {name: np.ones(4, np.float32)})
    if legal:
        assert set(PyTorchFile.open(path).tensors) == {name}
    else:
        refused("names no tensor", lambda: PyTorchFile.open(path))


@pytest.mark.parametrize("names", ((), ("a/data.pkl", "b/data.pkl"), ("a/data.pkl.txt",)))
def test_one_pickle_is_the_state_dict(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Neither none nor two."""
    with zipfile.ZipFile(tmp_path / "model.bin", "w") as zipped:
        for name in (*names, "a/version"):
            zipped.writestr(name, b"}.")
    count = sum(name.endswith(".pkl") for name in names)
    refused(f"{count} entries named data.pkl; a file torch.save wrote has one", lambda: PyTorchFile.open(tmp_path / "model.bin"))


@pytest.mark.parametrize("entry", ("data/0", "byteorder"))
def test_entries_are_those_beside_the_pickle(tmp_path: Path, pth: Any, entry: str) -> None:
    """An older torch writes no byte order; a storage that is not there is named."""
    path = pth.save(tmp_path / "model.bin", {"w": np.ones(4, np.float32)})
    path.write_bytes(path.read_bytes().replace(f"archive/{entry}".encode(), f"archivs/{entry}".encode()))
    if entry == "byteorder":
        assert set(PyTorchFile.open(path).tensors) == {"w"}
    else:
        refused("tensor w is in data/'0', which the file lacks", lambda: PyTorchFile.open(path))


@pytest.mark.parametrize(
    ("pickled", "says"),
    [
        (b"\x80\x02].", "holds a list, not a dict of tensors"),
        (b"\x80\x02}.", "holds no tensors"),
        (b"\x80\x02}K\x01K\x02s.", "'1' names no tensor"),
    ],
)
def test_what_is_no_state_dict_is_refused(tmp_path: Path, pth: Any, pickled: bytes, says: str) -> None:
    """A list, nothing, names that are numbers."""
    path = pth.archive(tmp_path / "model.bin", pickled, {})
    refused(rf"model\.bin: .*{says}", lambda: PyTorchFile.open(path))


def test_a_file_of_refused_tensors_alone_opens(tmp_path: Path, pth: Any) -> None:
    """As one of several, it may be that."""
    found = PyTorchFile.open(pth.save(tmp_path / "model.bin", {"ids": np.arange(4)})).tensors
    assert not found and set(found.refused) == {"ids"}


DTYPES = {
    "a name that is no dtype": b"ccollections\nOrderedDict\n",
    "a number": b"K\x07",
    "nothing": b"",
}


@pytest.mark.parametrize("case", DTYPES)
def test_a_new_tensor_of_no_dtype_is_damage(tmp_path: Path, pth: Any, case: str) -> None:
    """The function for dtypes without a storage class takes one of them as its seventh argument."""
    made = pth.tensor("0", "FloatStorage", 4, 0, (4,), (1,)).replace(b"_v2\n", b"_v3\n")
    pth.archive(tmp_path / "pytorch_model.bin", pth.pickled({"w": made[:-2] + DTYPES[case] + b"tR"}), {"0": bytes(16)})
    refused(r"pytorch_model\.bin: the pickle is damaged", lambda: Checkpoint.open(tmp_path))


@pytest.mark.parametrize("shift", (0, 1))
def test_numbers_are_read_where_they_lie(tmp_path: Path, pth: Any, shift: int) -> None:
    """Transposed bfloat16 bit for bit, over the map where it is aligned, a copy where not."""
    numbers = np.arange(-8, 8).astype(ml_dtypes.bfloat16)
    pickled = pth.pickled({"w": pth.tensor("0", "BFloat16Storage", 16, 4, (3, 4), (1, 3))})
    pth.archive(tmp_path / "model.bin", pickled, {"0": numbers.tobytes()}, shift=shift)
    found = PyTorchFile.open(tmp_path / "model.bin").tensors["w"][2]
    np.testing.assert_array_equal(found.view(np.uint16), numbers[4:].reshape(4, 3).T.view(np.uint16))
    assert mapped(found) is (shift == 0)
