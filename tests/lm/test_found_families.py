"""`iron-run PATH`, `iron_lm.load(PATH)`: the family is found from what the file says its architecture is."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iron_core import errors
from iron_core.cli import main
from iron_core.errors import CheckpointError, DeclarationError, UnknownName, UsageError
from iron_core.plugins.registry import registry
from iron_lm import Family, families
from iron_lm.checkpoints.checkpoint import Checkpoint

TINY = Path(__file__).parents[1] / "data" / "tiny_llama"
SHORT = ("--prompt-len", "3", "--num-tokens", "3", "--backend", "reference", "--json")
FAMILY = """
from iron_lm import Family
class {name}(Family):
    name, summary, architectures = "{name}", "of a test", {architectures!r}
    @classmethod
    def main(cls, argv): print(cls.name, *argv)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """folder(model_type): the tiny Llama's folder, its config.json of another model_type; without one: without config.json."""

    def made(model_type: str | None) -> Path:
        place = tmp_path / "model"
        shutil.copytree(TINY, place, dirs_exist_ok=True)
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").unlink()
        if model_type is not None:
            (place / "config.json").write_text(json.dumps(config | {"model_type": model_type}))
        return place

    return made


@pytest.fixture
def family(site: Any) -> Any:
    """family(name, *architectures): one of its own distribution, installed; with source instead, whatever that defines."""

    def add(name: str, *architectures: str, source: str | None = None) -> None:
        text = source or FAMILY.format(name=name, architectures=architectures)
        site.add(f"iron-{name}", entries={"iron.models.v1": {name: f"{name}_model:{name}"}}, modules={f"{name}_model.py": text})
        registry.cache_clear()

    return add


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a refusal."""
    status = main(["run", *argv])
    out, err = capsys.readouterr()
    assert (status, out) == (2, "") and re.fullmatch(r"error: [^\n]+\n", err), (status, out, err)
    return str(err)


def test_a_path_alone_runs_as_with_its_family(capsys: pytest.CaptureFixture[str]) -> None:
    """The same ids, under the name of the family that was found, wherever the path stands in the line."""
    assert main(["run", "llama", str(TINY), *SHORT]) == 0
    want = json.loads(capsys.readouterr().out)
    for argv in ([str(TINY), *SHORT], [*SHORT, str(TINY)], ["auto", *SHORT, str(TINY)], ["auto", *SHORT, "--checkpoint", str(TINY)]):
        assert main(["run", *argv]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [found[key] for key in ("model", "prompt_ids", "ids")] == ["llama", want["prompt_ids"], want["ids"]], argv


def test_a_models_name_comes_before_a_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where both are there; with a slash it is the folder."""
    (tmp_path / "llama").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "a checkpoint is needed: a file or folder" in refused(capsys, "llama")
    assert "llama: not a kind of checkpoint any reader recognises" in refused(capsys, "./llama")


def test_what_is_neither_a_model_nor_a_path_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """A word is looked up as both; what looks like a path is taken for one; `auto` needs one."""
    assert "no model `lama`. Did you mean `llama`?" in (said := refused(capsys, "lama")) and "No file or folder has that name" in said
    assert "no/such.gguf: no such file or folder" in refused(capsys, "no/such.gguf")
    for argv in (["auto"], ["auto", "--random-weights", "0"]):
        assert "a checkpoint is needed, to find the model from: iron-run PATH" in refused(capsys, *argv)


def test_a_file_that_does_not_say_what_it_is_is_refused(folder: Any) -> None:
    """Without config.json nothing is guessed."""
    with pytest.raises(CheckpointError, match=r"model: no config.json beside it, which says what model it is of"):
        families.of(Checkpoint.open(folder(None)))


@pytest.mark.parametrize("argv", [(), ("llama",)], ids=("found", "named"))
def test_a_file_that_names_no_architecture_is_refused(argv: tuple[str, ...], folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The entry that says it is named; no architecture called None is looked for."""
    place = folder("llama")
    config = json.loads((place / "config.json").read_text())
    for lacks in (config | {"model_type": None}, {k: v for k, v in config.items() if k != "model_type"}):
        (place / "config.json").write_text(json.dumps(lacks))
        assert refused(capsys, *argv, str(place)) == f"error: {place}: its config.json has no model_type, which says what model it is of.\n"
    path = place / "no.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    assert refused(capsys, *argv, str(path)).endswith(": its metadata has no general.architecture, which says what model it is of.\n")


def test_a_family_of_another_name_is_found(family: Any, folder: Any) -> None:
    """By its architectures; models that are no families of ours, and those that fail, are passed over."""
    family("zebra", "quagga", "okapi")
    family("broken", source="raise RuntimeError('no such luck')")
    family("other", source="class other:\n    architectures = ('okapi',)\n    def main(argv): pass")
    assert families.of(Checkpoint.open(folder("okapi"))).name == "zebra"


def test_an_architecture_nobody_runs_is_refused_with_those_there_are(family: Any, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each family with what it runs, and what failed and may be its owner."""
    monkeypatch.setattr(errors, "LONGEST", 10_000)  # whatever the path's length and the number of families
    family("zebra", "quagga", "okapi")
    family("broken", source="raise RuntimeError('no such luck')")
    with pytest.raises(CheckpointError) as caught:
        families.of(Checkpoint.open(folder("mamba\n9")))
    said = str(caught.value)
    assert r"architecture 'mamba\n9', which no model here runs. There are: " in said and "\n" not in said
    assert "llama, " in said and "zebra (quagga, okapi)" in said and "`iron models list --load` says why these fail: broken." in said


def test_an_architecture_of_two_families_is_ambiguous(family: Any, folder: Any) -> None:
    """The error names both; one that is named like it comes before both."""
    family("zebra", "okapi")
    family("horse", "okapi")
    with pytest.raises(UsageError, match=r"architecture 'okapi' is run by horse and by zebra; say which, before the path"):
        families.of(Checkpoint.open(folder("okapi")))
    family("okapi", "okapi")
    assert families.of(Checkpoint.open(folder("okapi"))).name == "okapi"


def test_finding_a_family_imports_no_other() -> None:
    """Where one is named like the architecture. Readers are all asked whether they recognise the file."""
    code = (
        "import sys; from iron_lm import families; from iron_lm.checkpoints.checkpoint import Checkpoint; "
        "print(families.of(Checkpoint.open(sys.argv[1])).name, *(m for m in sys.modules if m.startswith('iron_') and '.' not in m))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(TINY)], capture_output=True, text=True, check=True).stdout.split()
    readers = {"iron_onnx", "iron_q4nx"}
    assert out[0] == "llama" and set(out[1:]) <= {"iron_core", "iron_lm", *readers, "iron_ops_aie", "iron_llama", "iron_host"}


def test_architectures_are_a_tuple() -> None:
    """Of a bare text every part would be one."""
    with pytest.raises(DeclarationError, match=r"Zebra: architectures='okapi'; legal: a tuple of names"):
        type("Zebra", (Family,), {"architectures": "okapi"})


def test_a_family_by_name(family: Any) -> None:
    """One that is not there is told with those that are; a model that is no family is told as such."""
    assert families.named("llama").name == "llama"
    with pytest.raises(UnknownName, match=r"no model `lama`. Did you mean `llama`"):
        families.named("lama")
    family("other", source="class other:\n    def main(argv): pass")
    with pytest.raises(UsageError, match=r"model `other` is no iron_lm family; `iron-run other` runs it. Families: .*llama"):
        families.named("other")
