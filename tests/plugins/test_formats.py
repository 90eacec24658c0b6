"""Formats of other distributions: found by entry point, named like the others, taken by products on every backend that runs here."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import DTYPES, as_format
from iron_core.declare.identity import label
from iron_core.errors import FormatError, PluginError
from iron_core.plugins.registry import RESERVED, registry
from iron_ops_aie import GEMM, GEMV
from tests.layouts import TABLE

GROUP = "iron.formats.v1"

#: Three formats nobody here has: blocks of 16 with scale and zero point, a scale a row, and numbers in a table, which no plane says.
PACK = f"""{TABLE}
from iron_core import Plane, PlaneQuant

Q4Z = PlaneQuant("acme.q4z", (1, 16), (
    Plane("scales", "bfloat16", (1, 16)), Plane("zeros", "uint8", (1, 16)), Plane("values", "uint4")))
ROW8 = PlaneQuant("acme.row8", (1, 1), (Plane("values", "uint8", zero=128, apart=True), Plane("scales", "float32", (1, 0), apart=True)))
"""
NAMES = ("acme.q4z", "acme.row8", "acme.table")


@pytest.fixture
def acme(site):
    """A pack of three formats, installed."""
    entries = {"acme.q4z": "acme_formats:Q4Z", "acme.row8": "acme_formats:ROW8", "acme.table": "acme_formats:TABLE"}
    site.add("iron-acme", entries={GROUP: entries}, modules={"acme_formats.py": PACK})
    registry.cache_clear()


class Product(iron.Graph):
    """x times a weight transposed."""

    def __init__(self, w):
        self.w = iron.weight(w)

    def body(self, x):
        return GEMV(self.w, x) if x.ndim == 1 else GEMM(x, self.w, b_col_maj=True)


def test_a_name_is_enough(acme):
    """Wherever a dtype or format is named; nothing is imported before."""
    assert "acme_formats" not in sys.modules and "acme.q4z" in registry().names(GROUP)
    op = GEMV(M=8, K=32, W="acme.q4z")
    assert op.W is sys.modules["acme_formats"].Q4Z and as_format("acme.q4z") is op.W
    assert op.A.format is op.W and "Wacme.q4z" in label(op) and op.W.nbytes((8, 32)) == 8 * 2 * 11


@pytest.mark.parametrize("rows", (1, 3))
@pytest.mark.parametrize("backend", ("reference", "host"))
@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_weight_of_products(acme, name, backend, rows):
    """The numbers it stands for, times x; on the CPU by a kernel made from its planes, or by the reference where it has none."""
    w = as_format(name).quantize(np.random.default_rng(0).standard_normal((24, 64)).astype(np.float32))
    x = np.random.default_rng(1).standard_normal((rows, 64)[rows == 1 :]).astype(np.float32)
    y = Product(w).compile(backend=backend, x=(x.shape, np.float32))(x)
    assert np.allclose(y, x @ w.dequantize().T, rtol=1e-5, atol=1e-4)


def test_our_own_come_through_the_same_door():
    """GGUF's blocks are entry points of the packages that own them."""
    names = registry().names(GROUP)
    assert {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q6_k", "iq4_nl"} <= set(names)
    assert as_format("q4_1") is iron.Q4_1 and all(as_format(name).name == name for name in names if "." not in name)


def test_a_dtypes_name_is_irons(site):
    """No pack gives float32 another meaning."""
    site.add("iron-acme", entries={GROUP: {"float32": "acme_formats:Q4Z"}}, modules={"acme_formats.py": PACK})
    registry.cache_clear()
    assert RESERVED["formats"] == set(DTYPES) and as_format("float32") == iron.Dense(np.float32)
    (record,) = [r for r in registry().select(GROUP) if r.name == "float32"]
    assert record.status == "shadowed"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("acme_formats:Table", "names a class `Table`; a format is an instance of iron_core.Format"),
        ("acme_formats:NAMES", r"names an object of class `tuple`; a format is an instance of iron_core.Format"),
        ("acme_formats:missing", "has no attribute 'missing'"),
        ("acme_formats:Q4Z", "calls itself 'acme.q4z'; both names have to be one"),
    ],
)
def test_what_is_no_format_is_refused(site, value, says):
    """When it is asked for, in words that say whose it is and what is wanted."""
    site.add("iron-acme", entries={GROUP: {"acme.odd": value}}, modules={"acme_formats.py": PACK + "NAMES = ()\n"})
    registry.cache_clear()
    with pytest.raises(PluginError, match=rf"iron-acme 1\.0.*{says}"):
        as_format("acme.odd")


def test_a_name_nobody_has_is_refused_with_those_there_are(acme):
    """Dtypes and formats both."""
    with pytest.raises(FormatError, match=r"'q4_9' is neither a dtype Iron carries nor a format. Legal: bfloat16, .*acme\.q4z.*q8_0"):
        GEMV(M=4, K=32, W="q4_9")


def test_the_command_line_takes_its_name(site, acme, iron_command):
    """As it takes a dtype's."""
    done = iron_command("operators", "run", "GEMV", "M=8", "K=32", "W=acme.row8", "T=float32", "--backend", "reference")
    assert done.returncode == 0, done.stderr
