"""A checkpoint in one file or several, safetensors or torch.save's: all its weights are seen, or one line asks which file is meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.hub_files import HubFiles
from iron_lm.checkpoints.pytorch import PyTorchFile
from iron_lm.checkpoints.safetensors import SafetensorsFile
from tests.lm.hostile import refused

#: By reader, the name of a file: the whole, a part, another.
NAMES = {SafetensorsFile: "model{}.safetensors", PyTorchFile: "pytorch_model{}.bin"}
Write = Callable[..., Path]


@pytest.fixture(params=NAMES, ids=lambda reader: reader.kind)
def reader(request: pytest.FixtureRequest) -> type[HubFiles]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def write(reader: type[HubFiles], pth: Any, tmp_path: Path) -> Write:
    """write("-00001-of-00002", "a", "b") -> a file of tensors of these names, each of its own number."""

    def write(suffix: str, *names: str) -> Path:
        path = tmp_path / NAMES[reader].format(suffix)
        tensors = {name: np.full(4, ord(name), np.float32) for name in names}
        if reader is PyTorchFile:
            return pth.save(path, tensors)  # type: ignore[no-any-return]
        from safetensors.numpy import save_file

        save_file(tensors, str(path))
        return path

    return write


def index(reader: type[HubFiles], folder: Path, places: dict[str, Any]) -> None:
    (folder / reader.index).write_text(json.dumps({"weight_map": places}))


def numbers(path: Path) -> dict[str, float]:
    return {name: float(array[0]) for name, (_, _, array) in Checkpoint.open(path).tensors.items()}


ALL = {name: float(ord(name)) for name in "abc"}


def test_parts_without_an_index_are_one_checkpoint(reader: Any, write: Write, tmp_path: Path) -> None:
    """The folder or any of the parts: all tensors, and the line says how many files."""
    parts = [write("-00001-of-00002", "a", "b"), write("-00002-of-00002", "c")]
    for given in (tmp_path, *parts):
        assert numbers(given) == ALL
        assert Checkpoint.open(given).file.described == f"{reader.label}, 2 files"


def test_a_part_that_is_missing_is_named(write: Write, tmp_path: Path) -> None:
    """Whichever is given."""
    part = write("-00002-of-00002", "c")
    for given in (tmp_path, part):
        refused("-00001-of-00002.*No such file", lambda given=given: Checkpoint.open(given))


def test_a_name_in_two_parts_is_refused(reader: Any, write: Write, tmp_path: Path) -> None:
    """With an index and without."""
    write("-00001-of-00002", "a", "b")
    second = write("-00002-of-00002", "b", "c")
    says = rf"{second.name}: tensor b is in another of the checkpoint's files too"
    refused(says, lambda: Checkpoint.open(tmp_path))
    index(reader, tmp_path, {"a": NAMES[reader].format("-00001-of-00002"), "c": second.name})
    refused(says, lambda: Checkpoint.open(tmp_path))


@pytest.mark.parametrize(
    "suffixes",
    [
        ("", "_other"), ("", "-00001-of-00002"), ("-00001-of-00002", "-00001-of-00003"), ("-00003-of-00002", "-00001-of-00002"),
        ("-00001-of-10000", "-00002-of-10000"),
    ],
)  # fmt: skip
def test_other_files_beside_are_not_passed_over(reader: Any, write: Write, tmp_path: Path, suffixes: tuple[str, ...]) -> None:
    """Several that are not the parts of one: their names, and that an index would say which."""
    files = [write(suffix, name) for suffix, name in zip(suffixes, "ab", strict=True)]
    shown = ", ".join(sorted(file.name for file in files))
    refused(
        rf"holds 2 {reader.label} files \({shown}\) and no {reader.index}; name one of them, or fetch the index",
        lambda: Checkpoint.open(tmp_path),
    )


def test_of_many_others_a_few_are_shown(write: Write, tmp_path: Path) -> None:
    """Four of five."""
    files = sorted(write(f"_{name}", name).name for name in "abcde")
    refused(rf"holds 5 .* \({', '.join(files[:4])}\) and no", lambda: Checkpoint.open(tmp_path))


def test_a_part_that_is_none_is_a_file(write: Write, tmp_path: Path) -> None:
    """The third of two, one of more than there ever are."""
    for suffix in ("-00003-of-00002", "-00001-of-10000"):
        file = write(suffix, "a")
        assert numbers(file) == numbers(tmp_path) == {"a": ALL["a"]}
        file.unlink()


def test_one_file_is_the_checkpoint(reader: Any, write: Write, tmp_path: Path) -> None:
    """Given itself or as the only one of its folder; the line says which."""
    file = write("_other", "a")
    for given, form in ((file, "file"), (tmp_path, "folder")):
        assert numbers(given) == {"a": ALL["a"]}
        assert Checkpoint.open(given).file.described == f"{reader.label} {form}"


def test_a_file_that_is_named_is_read_alone(write: Write) -> None:
    """Whatever is beside it."""
    write("", "a")
    assert numbers(write("_other", "b")) == {"b": ALL["b"]}


def test_an_index_says_which_files_are_meant(reader: Any, write: Write, tmp_path: Path) -> None:
    """A folder with others besides, as Mistral's have."""
    places = {"a": write("-00001-of-00002", "a").name, **dict.fromkeys("bc", write("-00002-of-00002", "b", "c").name)}
    write("_consolidated", "x")
    index(reader, tmp_path, places)
    assert numbers(tmp_path) == numbers(tmp_path / reader.index) == ALL
    assert Checkpoint.open(tmp_path).file.described == f"{reader.label} index, 2 files"


def test_a_tensor_that_the_index_does_not_name_is_seen(reader: Any, write: Write, tmp_path: Path) -> None:
    """All of a file's tensors are the checkpoint's."""
    index(reader, tmp_path, dict.fromkeys("ab", write("-00001-of-00001", "a", "b", "c").name))
    assert numbers(tmp_path) == ALL


def test_an_index_that_lies_is_refused(reader: Any, write: Write, tmp_path: Path) -> None:
    """A tensor that is not where it says, a file that is not there, a place outside the folder, no map at all."""
    file = write("", "a").name
    for places, says in (
        ({"b": file}, rf"tensor b is not in {file}, where the index says it is"),
        ({"\x1b" * 99: file}, rf"tensor [^\x1b]+ is not in {file}"),
        ({"a": None}, "legal: the name of a file beside the index"),
        ({"a": f"absent_{file}"}, "No such file"),
        ({"a": f"../{file}"}, "legal: the name of a file beside the index"),
        (None, "no weight_map"),
    ):
        index(reader, tmp_path, places)  # type: ignore[arg-type]
        refused(says, lambda: Checkpoint.open(tmp_path))


def test_a_refused_tensor_is_where_the_index_says(pth: Any, tmp_path: Path) -> None:
    """A mask in the index does not stop the others."""
    pth.save(tmp_path / "pytorch_model.bin", {"a": np.ones(4, np.float32), "ids": np.arange(4)})
    index(PyTorchFile, tmp_path, dict.fromkeys(("a", "ids"), "pytorch_model.bin"))
    opened = Checkpoint.open(tmp_path)
    assert set(opened.tensors) == {"a"} and set(opened.tensors.refused) == {"ids"}


def test_config_json_beside_is_read(reader: Any, write: Write, tmp_path: Path) -> None:
    """For a file and for its folder; without it there is none."""
    file = write("", "a")
    assert "config" not in Checkpoint.open(file).metadata
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for given in (file, tmp_path):
        assert Checkpoint.open(given).metadata["config"] == {"model_type": "llama"}
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json: not a JSON object"):
        Checkpoint.open(file)
