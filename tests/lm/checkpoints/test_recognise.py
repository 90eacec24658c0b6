"""`iron-run llama FOLDER|FILE TOKENIZER`: what it is given is recognised and said, or refused with what would be taken."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core import errors
from iron_core.cli import main
from iron_core.errors import CheckpointError
from iron_core.plugins.entry_points import scan
from iron_core.plugins.record import LEVELS, Record
from iron_core.plugins.registry import Registry, registry
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.checkpoints import readers
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.pytorch import PyTorchFile
from iron_lm.checkpoints.recognise import describe, unknown_architecture
from iron_lm.checkpoints.safetensors import SafetensorsFile


@pytest.fixture
def shelf(tiny: Any, talking: Path, pth: Any, tmp_path: Path) -> Path:
    """Folders with the tiny Llama in every form: hub, alone, sharded, bin, sharded_bin, gguf, meta."""
    from safetensors.numpy import save_file

    source = tiny.checkpoint.path
    (tmp_path / "hub").mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(source / name, tmp_path / "hub" / name)
    shutil.copytree(tmp_path / "hub", tmp_path / "alone")
    (tmp_path / "alone" / "model.safetensors").rename(tmp_path / "alone" / "weights.safetensors")
    (tmp_path / "sharded").mkdir()
    shutil.copy(source / "config.json", tmp_path / "sharded")
    names, places = sorted(tiny.checkpoint.tensors), {}
    for i, part in enumerate((names[:9], names[9:])):
        file = f"model-{i + 1:05d}-of-00002.safetensors"
        save_file({name: np.asarray(tiny.checkpoint.tensors[name][2]) for name in part}, str(tmp_path / "sharded" / file))
        places |= dict.fromkeys(part, file)
    (tmp_path / "sharded" / SafetensorsFile.index).write_text(json.dumps({"weight_map": places}))
    arrays = {name: np.asarray(tiny.checkpoint.tensors[name][2]) for name in names}
    for folder, parts in (("bin", (names,)), ("sharded_bin", (names[:9], names[9:]))):
        (tmp_path / folder).mkdir()
        shutil.copy(source / "config.json", tmp_path / folder)
        for i, part in enumerate(parts):
            file = f"pytorch_model-{i + 1:05d}-of-00002.bin" if len(parts) > 1 else "pytorch_model.bin"
            pth.save(tmp_path / folder / file, {name: arrays[name] for name in part})
            places |= dict.fromkeys(part, file)
    (tmp_path / "sharded_bin" / PyTorchFile.index).write_text(json.dumps({"weight_map": places}))
    (tmp_path / "gguf").mkdir()
    shutil.copy(talking, tmp_path / "gguf" / "tiny.gguf")
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "params.json").write_text("{}")
    pth.save(tmp_path / "meta" / "consolidated.00.pth", {"norm.weight": np.ones(64, np.float32)})
    return tmp_path


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ("hub", "safetensors", "safetensors folder · llama · 21 tensors (21 float32) · 0.5 MB · "),
        ("alone", "safetensors", "safetensors folder · llama · 21 tensors"),
        ("alone/weights.safetensors", "safetensors", "safetensors file · llama · 21 tensors"),
        ("sharded", "safetensors", "safetensors index, 2 files · llama · 21 tensors"),
        (f"sharded/{SafetensorsFile.index}", "safetensors", "safetensors index, 2 files · llama · 21 tensors"),
        ("bin", "pytorch", "PyTorch folder · llama · 21 tensors (21 float32) · 0.5 MB · "),
        ("bin/pytorch_model.bin", "pytorch", "PyTorch file · llama · 21 tensors"),
        ("sharded_bin", "pytorch", "PyTorch index, 2 files · llama · 21 tensors"),
        (f"sharded_bin/{PyTorchFile.index}", "pytorch", "PyTorch index, 2 files · llama · 21 tensors"),
        ("sharded_bin/pytorch_model-00002-of-00002.bin", "pytorch", "PyTorch, 2 files · llama · 21 tensors"),
        ("gguf", "gguf", "GGUF 3 · llama · 22 tensors"),
        ("gguf/tiny.gguf", "gguf", "GGUF 3 · llama · 22 tensors"),
        ("meta", "meta", "Meta's layout, 1 shard · llama · 1 tensors"),
        ("meta/params.json", "meta", "Meta's layout, 1 shard · llama · 1 tensors"),
        ("meta/consolidated.00.pth", "meta", "Meta's layout, 1 shard · llama · 1 tensors"),
    ],
)
def test_every_form_is_recognised_and_described(shelf: Path, given: str, kind: str, says: str) -> None:
    """A folder or a file of it: the reader, and one line that says what it found."""
    opened = Checkpoint.open(shelf / given)
    assert opened.kind == kind
    assert describe(opened).startswith(says) and "\n" not in describe(opened)


def test_a_kind_is_known_by_its_content(shelf: Path) -> None:
    """A file of another name is recognised by its first bytes."""
    for source, kind in (("gguf/tiny.gguf", "gguf"), ("hub/model.safetensors", "safetensors"), ("bin/pytorch_model.bin", "pytorch")):
        shutil.copy(shelf / source, shelf / "blob")
        assert Checkpoint.open(shelf / "blob").kind == kind


def test_a_reader_that_does_not_load_keeps_none_from_reading(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin without code: files of the others open; a file of none says why it may be that plugin's."""
    monkeypatch.setattr(errors, "LONGEST", 10_000)  # whatever the path's length
    entry = metadata.EntryPoint("acme", "no_such_module:Reader", "iron.checkpoints.v1")
    broken = Record("checkpoints", LEVELS["checkpoints"], "acme", entry.value, "iron-acme", "1.0", entry)
    mine = Registry([broken, *(r for r in registry().records if r.group == "checkpoints")])
    monkeypatch.setattr("iron_lm.checkpoints.readers.registry", lambda: mine)
    assert Checkpoint.open(shelf / "hub").kind == "safetensors"
    (shelf / "notes.txt").write_text("nothing of the kind")
    with pytest.raises(
        CheckpointError, match=r"Readers: gguf, meta, (onnx, )?pytorch, q4nx, safetensors\. checkpoint `acme` is provided by iron-acme 1\.0"
    ) as caught:
        Checkpoint.open(shelf / "notes.txt")
    assert "\n" not in str(caught.value)


def test_forms_give_the_same_answer(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its place or as --checkpoint, folder, file, shards: the same ids."""
    found = []
    for argv in (["hub"], ["--checkpoint", "hub"], ["alone"], ["alone/weights.safetensors"], ["sharded"], ["bin"], ["sharded_bin"]):
        line = [str(shelf / word) if not word.startswith("-") else word for word in argv]
        assert main(["run", "llama", *line, "--num-tokens", "4", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["path"] == str(shelf / argv[-1]) and str(shelf) not in answer["checkpoint"]
        found.append(answer["ids"])
    assert all(ids == found[0] for ids in found)


def test_a_tokenizer_by_its_place(shelf: Path, tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The second word is --tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(tiny.config().vocab_size)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(shelf / "tokenizer.json"))
    line = ["run", "llama", str(shelf / "hub"), str(shelf / "tokenizer.json"), "--prompt", "w5 w7", "--num-tokens", "2", "--json"]
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["prompt_ids"] == [5, 7]


def test_the_line_is_said_first(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, before what runs and how fast; never on standard output."""
    assert main(["run", "llama", str(shelf / "hub"), "--num-tokens", "2"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[0].startswith("safetensors folder · llama") and "safetensors" not in out


def refused(capsys: pytest.CaptureFixture[str], says: str, *argv: str) -> None:
    assert main(["run", "llama", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(r"error: [^\n]+\n", err), err
    assert re.search(says, err), err


def in_parts(folder: Path, count: int) -> Path:
    """A folder with a GGUF of six tensors in `count` files."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    writer = gguf.GGUFWriter(str(folder / "big.gguf"), "llama", split_max_tensors=6 // count)
    for i in range(6):
        writer.add_tensor(f"t{i}", np.full((2, 32), i, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    return in_parts(tmp_path, 3)


@pytest.mark.parametrize("count", [2, 3])
def test_a_gguf_in_several_files_is_one(tmp_path: Path, count: int) -> None:
    """The folder or any of the files: all tensors, the first file's metadata."""
    parts = in_parts(tmp_path, count)
    names = sorted(p.name for p in parts.iterdir())
    assert names == [f"big-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]
    for given in (parts, *(parts / name for name in names)):
        opened = Checkpoint.open(given)
        assert opened.path == parts / names[0] and opened.metadata["general.architecture"] == "llama"
        assert {name: float(array[0, 0]) for name, (_, _, array) in opened.tensors.items()} == {f"t{i}": float(i) for i in range(6)}
        assert describe(opened).startswith(f"GGUF 3, {count} files · llama · 6 tensors")


def test_a_part_that_is_missing_renamed_or_another_is_named(parts: Path) -> None:
    """One line says which file."""
    second, third = (parts / f"big-{i:05d}-of-00003.gguf" for i in (2, 3))
    first = parts / "big-00001-of-00003.gguf"
    raw = third.read_bytes()
    third.write_bytes(second.read_bytes())
    with pytest.raises(CheckpointError, match="tensor t2 is in another of the checkpoint's files too"):
        Checkpoint.open(first)
    third.unlink()
    with pytest.raises(CheckpointError, match=r"00003-of-00003\.gguf: No such file"):
        Checkpoint.open(first)
    third.write_bytes(raw.replace(b"split.count", b"split.cound"))
    with pytest.raises(CheckpointError, match="does not say it is one of 3 files"):
        Checkpoint.open(first)
    first.rename(parts / "model.gguf")
    with pytest.raises(CheckpointError, match="one of '3' files by its header; legal: a name that ends in"):
        Checkpoint.open(parts / "model.gguf")


def test_naming_it_twice_is_refused(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By place and by option."""
    hub = str(shelf / "hub")
    refused(capsys, "both name the checkpoint; leave one out", hub, "--checkpoint", hub)
    refused(capsys, "both name the tokenizer; leave one out", hub, "a.json", "--tokenizer", "b.json")
    refused(capsys, "unexpected extra argument", hub, "a.json", "b.json")
    refused(capsys, "takes no --checkpoint", hub, "--random-weights", "0")


def test_a_folder_that_is_none_says_what_it_holds(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Empty, of other files, of several checkpoints."""
    (shelf / "empty").mkdir()
    nothing = "not a kind of checkpoint any reader recognises"
    refused(capsys, rf"{nothing} \(it is empty\). Readers: gguf, meta, (onnx, )?pytorch, q4nx, safetensors", str(shelf / "empty"))
    (shelf / "empty" / "training_args.bin").write_bytes(b"PK")
    refused(capsys, rf"{nothing} \(it holds training_args\.bin\)", str(shelf / "empty"))
    shutil.copy(shelf / "gguf" / "tiny.gguf", shelf / "hub")
    refused(capsys, "holds gguf and safetensors checkpoints; name the file that is meant", str(shelf / "hub"))
    shutil.copy(shelf / "gguf" / "tiny.gguf", shelf / "gguf" / "other.gguf")
    refused(capsys, r"holds 2 GGUF files; name one of other\.gguf, tiny\.gguf", str(shelf / "gguf"))


def test_a_file_whose_reader_is_not_there_names_its_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed, or hidden."""
    file = tmp_path / "model.q4nx"
    file.write_bytes(b"")
    without = Registry([record for record in scan() if record.distribution != "iron-q4nx"])
    hidden = Registry(scan(), "-iron-q4nx")
    for found, says in (
        (without, r"Readers: gguf, .*\. \*\.q4nx is read by iron-q4nx, which is not installed\."),
        (hidden, r"\*\.q4nx: checkpoint `q4nx` is provided by iron-q4nx .*, which is denied: hidden by IRON_PLUGINS=-iron-q4nx\."),
    ):
        monkeypatch.setattr(readers, "registry", lambda found=found: found)
        for path in (tmp_path, file):
            with pytest.raises(CheckpointError, match=says):
                Checkpoint.open(path)


def test_an_architecture_there_is_none_for_lists_those_there_are(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By name, from config.json and from a GGUF; a newline in it does not break the line."""
    config = json.loads((shelf / "hub" / "config.json").read_text())
    for name in ("mamba", "two\nlines", "x" * 1000):
        (shelf / "hub" / "config.json").write_text(json.dumps(config | {"model_type": name}))
        refused(capsys, f"architecture {re.escape(repr(name[:40]))}. This model runs: llama. Models there are: .*llama", str(shelf / "hub"))
    raw = (shelf / "gguf" / "tiny.gguf").read_bytes().replace(b"llama", b"lluma")
    (shelf / "gguf" / "tiny.gguf").write_bytes(raw)
    refused(capsys, "architecture 'lluma'", str(shelf / "gguf"))


def test_the_model_that_runs_it_is_named_and_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the entry points' metadata alone: a model whose code does not exist is listed, and named where it fits."""
    level = LEVELS["models"]
    records = [Record("models", level, name, "no_such_module:Runner", "iron-other", "1.0", None) for name in ("llama", "qwen9", "gemma9")]
    monkeypatch.setattr("iron_lm.checkpoints.recognise.registry", lambda: Registry(records))
    said = unknown_architecture("qwen9", ("llama",))
    assert said == "architecture 'qwen9'. This model runs: llama. `iron-run qwen9` runs it. Models there are: gemma9, llama, qwen9."
    assert "`iron-run gemma9` runs it" in unknown_architecture("gemma9_text", ("llama",))
    assert "runs it" not in unknown_architecture("mamba", ("llama",))


def test_refusing_an_architecture_imports_no_other_model(shelf: Path) -> None:
    """In a fresh process, the refusal has loaded llama and nothing of the other models there are."""
    config = json.loads((shelf / "hub" / "config.json").read_text()) | {"model_type": "mamba"}
    (shelf / "hub" / "config.json").write_text(json.dumps(config))
    code = (
        "import sys; from iron_core.cli import main; status = main(['run', 'llama', sys.argv[1]]); "
        "print(status, sorted(m for m in sys.modules if m.startswith('iron_') and '.' not in m))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(shelf / "hub")], capture_output=True, text=True, check=True).stdout
    assert out.startswith("2 ") and "iron_llama" in out
    others = {r.value.partition(".")[0].partition(":")[0] for r in registry().select("models")} - {"iron_llama", "iron_lm"}
    assert not [name for name in others if repr(name) in out]


@pytest.mark.parametrize("field", ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"))
def test_a_shape_is_never_guessed(shelf: Path, field: str) -> None:
    """What config.json leaves out is named; there is no model of a usual size."""
    config = json.loads((shelf / "hub" / "config.json").read_text())
    del config[field]
    (shelf / "hub" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"config.json lacks {field}"):
        loading.load(Llama, str(shelf / "hub"))


def test_settings_that_config_json_leaves_out_are_said(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are what transformers takes, in the header and in --json; null counts as left out."""
    config = json.loads((shelf / "hub" / "config.json").read_text())
    (shelf / "hub" / "config.json").write_text(json.dumps(config | {"rms_norm_eps": None, "max_position_embeddings": None}))
    assert main(["run", "llama", str(shelf / "hub"), "--num-tokens", "2"]) == 0
    said = capsys.readouterr().err.splitlines()[1]
    assert said == "the files do not say, so as the format has it: max_position_embeddings 2048, rms_norm_eps 1e-06"
    assert main(["run", "llama", str(shelf / "hub"), "--num-tokens", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["assumed"] == {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6}
