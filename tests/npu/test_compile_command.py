"""`iron compile`: the whole image of a graph or a model, in a folder."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest

import iron_core as core
from iron_core.cli import main
from iron_core.errors import UsageError
from iron_npu.image.emitted import write_image
from iron_npu.image.making import image_of
from iron_ops_aie import SiLU
from tests.npu.structural import check

MINE = '''
import numpy as np
import iron_core as iron
from iron_ops_aie import SiLU, GEMV

class Rows(iron.Graph):
    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(x[:n])

class Weighted(iron.Graph):
    def __init__(self):
        self.w = np.ones((64, 64), iron.bfloat16)
    def body(self, x):
        return GEMV(self.w, x)

both = Weighted().compile(x=(64,), backend="null", dev="npu2")
on_host = Weighted().compile(x=(64,), backend="reference")
'''


@pytest.fixture
def iron(capsys, tmp_path, monkeypatch):
    """`iron compile ARGV...` in an empty folder with mine.py: (status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    def run(*argv):
        status = main(["compile", *argv])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_a_graph_of_a_file_is_told(iron, tmp_path):
    """Without a folder nothing is written: how many binaries and modules, and a line for each version."""
    status, out, err = iron("mine.py:Rows", "x=64x512")
    assert (status, err) == (0, "") and out.startswith("Rows on npu2: 1 full ELF; modules: 1, kernels: 1")
    assert "main_x_64x512  x=(64, 512) bfloat16  1" in out
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py"}


@pytest.mark.parametrize(
    ("asked", "kind", "files"),
    [
        ([], "elf", ["Weighted.mlir"]),
        (["--dev", "npu1"], "xclbin", None),
        (["--each-step"], "xclbin", None),
        (["--image", "contexts"], "contexts", None),
    ],
)
def test_a_folder_has_every_module_and_the_record(iron, tmp_path, asked, kind, files):
    """What the record lists is there, and is MLIR that holds together; `--json` is the record."""
    status, out, _ = iron("mine.py:Weighted", "x=64", "--emit", "out", *asked)
    record = json.loads((tmp_path / "out" / "record.json").read_text())
    assert status == 0 and record["kind"] == kind and " files, " in out
    there = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert there == sorted([*(module["file"] for module in record["modules"]), "record.json"])
    assert files is None or there == [*files, "record.json"]
    for module in record["modules"]:
        assert check((tmp_path / "out" / module["file"]).read_text()) == ()
        linked = {symbol for one in module["objects"] for symbol in one["kernels"]}
        assert linked <= record["kernels"].keys()
    assert json.loads(iron("mine.py:Weighted", "x=64", "--json", *asked)[1]) == record


def test_what_an_earlier_image_left_goes(iron, tmp_path):
    """A folder of another image is of the new one alone; one of other things is left as it is."""
    assert iron("mine.py:Weighted", "x=64", "--emit", "out", "--dev", "npu1")[0] == 0
    assert iron("mine.py:Rows", "x=64x512", "--emit", "out")[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Rows.mlir", "record.json"]
    (tmp_path / "out" / "notes.txt").write_text("mine")
    status, out, err = iron("mine.py:Rows", "x=64x512", "--emit", "out")
    assert (status, out) == (2, "") and "--emit out: it holds other files. Legal: a new or empty folder" in err
    assert iron("mine.py:Rows", "x=64x512", "--emit", ".")[0] == 2 and (tmp_path / "mine.py").exists()


def test_a_record_that_names_files_elsewhere_removes_none(iron, tmp_path):
    """Of a folder that somebody else prepared."""
    out, mine = tmp_path / "out", tmp_path / "mine.py"
    out.mkdir()
    (out / "record.json").write_text(json.dumps({"modules": [{"file": "../mine.py"}]}))
    assert iron("mine.py:Rows", "x=64x512", "--emit", "out")[0] == 0 and mine.read_text() == MINE


def test_a_graph_that_is_compiled_already_is_taken_as_it_is(iron):
    assert iron("mine.py:both")[1].startswith("Weighted on npu2: 1 full ELF")
    status, _, err = iron("mine.py:on_host")
    assert status == 2 and "mine.py:on_host was compiled for host, which has no array" in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["mine.py:Rows", "x=64x512", "--dev", "host"], "--dev host: it has no array"),
        (["mine.py:Rows", "x=64x512", "--dev", "npu7"], "no such device"),
        (["mine.py:Rows", "x=64x512", "--image", "xclbin"], "several steps fused inside one have no proven construction"),
        (["mine.py:Rows", "x=64x512", "--emit", "mine.py"], "--emit mine.py: File exists"),
        (["lama"], "Did you mean"),
    ],
)
def test_mistakes_are_one_line(iron, argv, says):
    status, out, err = iron(*argv)
    assert (status, out) == (2, "") and err.count("\n") == 1 and says in err, err


@pytest.mark.slow
def test_a_full_size_model_is_written_without_its_weights(iron, tmp_path):
    """Llama 3.2 1B, 1.2 billion numbers of which none is drawn: both versions in one module, and no gigabyte more in memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status, out, _ = iron("llama", "--dev", "npu2", "--random-weights", "0", "--emit", "out")
    assert status == 0 and "main_ids_64_int32" in out
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB
    record = json.loads((tmp_path / "out" / "record.json").read_text())
    assert [version["name"] for version in record["versions"]] == ["main", "main_ids_64_int32"]
    assert record["resident_banks"][0] > 3 << 30


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    class One(core.Graph):
        def body(self, x):
            return SiLU(x)

    image = image_of(One().compile(dev="npu2", backend="null", x=((64,), np.dtype(core.bfloat16))).plan)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file/out: Not a directory"):
        write_image(image, tmp_path / "file" / "out")
