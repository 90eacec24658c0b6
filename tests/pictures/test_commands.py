"""`iron picture` and `iron operators show --html`."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from iron_core.cli import main
from tests.lm.conftest import TINY

MINE = '''
import numpy as np
import iron_core as iron
from iron_ops_aie import SiLU, GEMV

class Rows(iron.Graph):
    """SiLU of the first rows."""
    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(x[:n])

class Weighted(iron.Graph):
    def __init__(self, m):
        self.w = np.ones((m, 64), np.float32)
    def body(self, x):
        return GEMV(self.w, x)

weighted = Weighted(8)
compiled = Rows().compile(x=(4, 32), backend="null", dev="npu1")
number = 3
'''

#: A backend that plans and prices.
ABACUS = """
from iron_core.backends.null import NullBackend
from iron_core.image.array_image import array_image

class Prices:
    total_us = 1234.0
    def step_us(self, name):
        return 34.0

class Abacus(NullBackend):
    name = 'abacus'
    def compile(self, plan, signature):
        return array_image(plan, signature)
    def price(self, image, values={}):
        return Prices()
"""


@pytest.fixture
def iron(capsys, tmp_path, monkeypatch):
    """`iron ARGV...` in an empty folder with mine.py: (status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    def run(*argv):
        status = main(list(argv))
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_a_graph_of_a_file_is_drawn(iron, tmp_path):
    """A class, an object with weights, or one that is compiled; into a page of its name, which standard output says."""
    assert iron("picture", "mine.py:Rows", "x=64x32", "--dev", "npu2", "--backend", "null") == (0, "Rows.html\n", "")
    text = (tmp_path / "Rows.html").read_text()
    assert "silu0" in text and "version x=(64, 32) bfloat16" in text
    assert iron("picture", "mine.py:weighted", "x=64:float32", "--backend", "reference")[0] == 0
    assert "gemv0" in (tmp_path / "Weighted.html").read_text()
    assert iron("picture", "mine.py:compiled", "-o", "given.html")[1] == "given.html\n"


def test_the_ending_says_what_is_drawn(iron, tmp_path):
    """A page, an SVG, or Graphviz text."""
    for name, starts in (("a.html", "<!doctype html>"), ("a.svg", "<svg"), ("a.dot", "digraph")):
        assert iron("picture", "mine.py:compiled", "-o", name)[0] == 0
        assert (tmp_path / name).read_text().startswith(starts)
    ET.parse(tmp_path / "a.svg")


def test_a_model_is_drawn_by_its_command_line(iron, tmp_path):
    """The rest of the line is the model's own; its versions are on one page."""
    line = ["--checkpoint", str(TINY), "--max-seq-len", "64", "--prefill-chunk", "32"]
    status, out, err = iron("picture", "llama", *line, "--backend", "null", "--dev", "npu2", "--fold", "-o", "model.html")
    assert (status, out, err) == (0, "model.html\n", "")
    text = (tmp_path / "model.html").read_text()
    assert "(no tensors)" in text and "version ids=(32,) int32" in text and "folded into others" in text


def test_an_npu_is_priced_where_a_backend_prices(iron, site, tmp_path, monkeypatch):
    """Without --backend the first that has prices is asked, beside the simulator or without it; what a call takes stands on top."""
    monkeypatch.setenv("IRON_PLUGINS", "-iron-sim")
    site.add("iron-abacus", entries={"iron.backends.v1": {"abacus": "abacus:Abacus"}}, modules={"abacus.py": ABACUS})
    assert iron("picture", "mine.py:Rows", "x=64x32", "--dev", "npu2")[0] == 0
    text = (tmp_path / "Rows.html").read_text()
    assert "on abacus for npu2" in text and "1.23 ms" in text and "34.0 us" in text
    assert iron("operators", "show", "SiLU", "size=4096", "--dev", "npu2", "--html")[0] == 0
    assert "1.23 ms" in (tmp_path / "SiLU.html").read_text()


def test_what_no_array_takes_is_drawn_as_it_is_planned(iron, tmp_path):
    """With the reason; unless a backend is named, which then refuses it."""
    line = ["picture", "llama", "--checkpoint", str(TINY), "--max-seq-len", "64", "--dev", "npu2", "-o", "model.html"]
    status, out, err = iron(*line)
    assert (status, out) == (0, "model.html\n") and "without prices: RoPE" in err
    assert "No array image can be made: RoPE" in (tmp_path / "model.html").read_text()
    assert iron(*line, "--backend", "sim")[0] == 2


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["mine.py:number"], "legal: a Graph"),
        (["mine.py:Missing"], "defines no Missing"),
        (["mine.py:Weighted"], "missing a required argument: 'm'"),
        (["mine.py:Rows", "x=64;32"], "an input is NAME=SHAPE"),
        (["mine.py:Rows", "64x32"], "an input is NAME=SHAPE"),
        (["mine.py:Rows", "x=64x32", "x=64x32"], "x is given twice"),
        (["mine.py:Rows", "x=64x32", "-o", "nowhere/a.html"], "nowhere/a.html: No such file"),
        (["nothing.py:Rows"], "no such file"),
        (["lama"], "Did you mean"),
        (["mine.py:compiled", "-o", "a.png"], "legal: .html, .svg, .dot"),
        (["mine.py:compiled", "-o", "nowhere/a.html"], "nowhere/a.html: No such file"),
        (["mine.py:Rows", "x=64x32", "--dev", "npu7"], "no such device"),
    ],
)
def test_mistakes_are_one_line(iron, argv, says):
    """What was asked, and what would be legal; status 2, and nothing is written."""
    status, out, err = iron("picture", *argv)
    assert (status, out) == (2, "") and err.count("\n") == 1 and says in err, err


def test_an_operators_array_is_drawn(iron, tmp_path, outline):
    """Its tiles, streams, programs and transfers."""
    assert iron("operators", "show", "GEMM", "M=256", "K=256", "N=512", "--dev", "npu2", "--html", "g.html") == (0, "g.html\n", "")
    text = (tmp_path / "g.html").read_text()
    page = outline(text)
    words = " ".join(page.texts)
    assert not page.wrong and "GEMM on npu2" in words and "acquire 1 of A_row0 to read" in words
    assert len(page.all("g", "stream")) == len(page.all("svg")) * 64 and "core3_7" in words


def test_an_operators_array_is_told_too(iron):
    """Behind its declaration, of the fields that are given or of a test case; JSON has it as a text."""
    status, out, _ = iron("operators", "show", "GEMV", "M=256", "K=64", "--dev", "npu2")
    assert status == 0 and "lowerings: host" in out and "GEMV(M=256, K=64" in out and "cores      " in out
    assert "  cores      " not in iron("operators", "show", "GEMV", "M=256", "K=64")[1]
    assert "on npu1" in iron("operators", "show", "RoPE", "--dev", "npu1")[1]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["GEMM", "--html"], "is of one device"),
        (["Softmax", "rows=3", "cols=5", "--dev", "npu2", "--html"], "Softmax"),
        (["GEMM", "M=3", "K=5", "N=7", "--dev", "npu2", "--html"], "M=3"),
        (["GEMM", "Q=3", "--dev", "npu2", "--html"], "GEMM has no field Q"),
    ],
)
def test_an_operator_that_cannot_be_drawn_says_why(iron, argv, says, tmp_path):
    """In one line, and nothing is written."""
    status, out, err = iron("operators", "show", *argv)
    assert (status, out) == (2, "") and err.count("\n") == 1 and says in err, err
    assert not list(tmp_path.glob("*.html"))
