"""Where two packs read one kind of file the user says which: `--reader` of `iron-run` and `iron checkpoints`, `reader=` from Python."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from iron_core.cli import main
from iron_core.errors import CheckpointError, PluginError, PluginWarning, UsageError
from iron_core.plugins.registry import registry
from iron_lm import load
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.identity import identity
from iron_lm.conversion.conversion import Conversion
from tests.lm.conftest import TINY

#: A reader of what safetensors has, in folders that are called otherwise, which says of itself that it did it.
READER = """
from iron_lm.checkpoints.safetensors import SafetensorsFile
class It:
    @staticmethod
    def sniff(path, head): return path.suffix == ".odd"
    @staticmethod
    def open(path):
        file = SafetensorsFile.open(path)
        file.described = "odd, by " + __name__
        return file
"""


@pytest.fixture
def odd(site, tmp_path):
    """The tiny Llama, in a folder that Iron's own recognise, and two packs too."""
    for name in ("one", "two"):
        entries = {"iron.checkpoints.v1": {f"odd-{name}": f"reader_{name}:It"}}
        site.add(f"iron-{name}", entries=entries, modules={f"reader_{name}.py": READER})
    registry.cache_clear()
    shutil.copytree(TINY, tmp_path / "m.odd")
    return tmp_path / "m.odd"


def shown(capsys, *argv):
    """(status, JSON or None, standard error) of `iron checkpoints show ARGV... --json`."""
    status = main(["checkpoints", "show", *map(str, argv), "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else None, err


def test_the_one_that_is_named_reads_it(odd, capsys):
    """Beside Iron's own, which would; from Python and on the command line."""
    for name in ("odd-one", "iron-one:odd-one"):
        checkpoint = Checkpoint.open(odd, reader=name)
        assert (checkpoint.kind, checkpoint.file.described) == ("odd-one", "odd, by reader_one")
    with pytest.warns(PluginWarning, match=r"`safetensors` of iron-lm .* recognises it as well; --reader odd-one has it read"):
        assert Checkpoint.open(odd).kind == "safetensors"
    assert main(["checkpoints", "show", str(odd), "--reader", "odd-two"]) == 0
    assert capsys.readouterr().out.startswith("odd, by reader_two")
    assert Checkpoint.open(TINY, reader="odd-two").kind == "odd-two", "whether it recognises it or not"


def test_a_model_runs_from_what_it_read(odd, capsys):
    """`iron-run PATH --reader`, of a named family too, and `load(reader=)`: the same answer as by Iron's own."""
    line = ["--prompt-len", "4", "--num-tokens", "3", "--max-seq-len", "64", "--backend", "reference", "--json"]
    answers = []
    for argv in ([str(TINY)], [str(odd), "--reader", "odd-one"], ["llama", str(odd), "--reader", "odd-two"]):
        assert main(["run", *argv, *line]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert [answer["checkpoint"].partition(" \u00b7")[0] for answer in answers[1:]] == ["odd, by reader_one", "odd, by reader_two"]
    assert answers[0]["ids"] == answers[1]["ids"] == answers[2]["ids"]
    model = load(odd, reader="odd-one", backend="reference", max_seq_len=64)
    assert model.loaded.recognised.startswith("odd, by reader_one")


def test_a_conversion_reads_by_it(odd, tmp_path):
    """As `iron checkpoints convert --reader`."""
    conversion = Conversion(odd, tmp_path / "out", "q4nx", reader="odd-one")
    assert conversion.run().tensors > 0


def test_where_only_others_recognise_it_the_message_says_how_to_choose(odd, capsys):
    """And what it says works."""
    (odd.parent / "n.odd").mkdir()
    shutil.copy(TINY / "model.safetensors", odd.parent / "n.odd" / "weights")
    with pytest.raises(CheckpointError, match=r"both recognise it; say which: --reader odd-one or odd-two; or hide one: IRON_PLUGINS=-"):
        Checkpoint.open(odd.parent / "n.odd")


@pytest.mark.parametrize("name", ("odd-three", "iron-three:odd-one", ""))
def test_a_reader_that_nobody_has_is_refused_with_those_there_are(odd, capsys, name):
    """In one line, with what would be legal."""
    with pytest.raises(UsageError, match=rf"reader `{name}`.*Known: .*odd-one.*odd-two.*`iron plugins list --group checkpoints`"):
        Checkpoint.open(odd, reader=name)
    status, facts, err = shown(capsys, odd, "--reader", name)
    assert status == 2 and facts is None and err.count("\n") == 1 and f"reader `{name}`" in err


def test_one_name_of_two_packs_is_reached_by_the_packs(site, odd):
    """As everywhere; one that cannot be loaded says why."""
    site.add("iron-three", entries={"iron.checkpoints.v1": {"odd-one": "reader_three:It"}}, modules={"reader_three.py": READER})
    site.add("iron-four", entries={"iron.checkpoints.v1": {"odd-four": "reader_four:It"}}, modules={"reader_four.py": "1 / 0"})
    registry.cache_clear()
    with pytest.raises(PluginError, match=r"`odd-one` is provided by iron-one 1\.0 and by iron-three 1\.0\. Say which: `iron-one:odd-one`"):
        Checkpoint.open(odd, reader="odd-one")
    assert Checkpoint.open(odd, reader="iron-three:odd-one").file.described == "odd, by reader_three"
    with pytest.raises(PluginError, match=r"iron-four 1\.0 .*ZeroDivisionError"):
        Checkpoint.open(odd, reader="odd-four")


def test_what_is_made_of_its_numbers_is_kept_as_its_own(odd):
    """Two readers of one file may read it differently, to tensors of the same names, shapes and formats."""
    one, two = (Checkpoint.open(odd, reader=name) for name in ("odd-one", "odd-two"))
    assert all(np.array_equal(one.tensors[name][2], two.tensors[name][2]) for name in one.tensors)
    assert identity(one).files == identity(two).files and identity(one).digest != identity(two).digest
