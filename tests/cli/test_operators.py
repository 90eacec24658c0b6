"""`iron operators show` and `iron operators run`."""

from __future__ import annotations

import json
import re

import pytest

OWN = '''
import numpy as np
import iron_core as iron
from iron_core import Case, Testing

class SquaredReLU(iron.UnaryElementwise):
    """max(x, 0)^2, elementwise."""
    test = Testing(Case(size=64), draw=dict(centered=("x",)))
    def reference(self, x):
        y = np.maximum(x.astype(np.float32), 0)
        return y * y

class Plain:
    pass
'''


def test_show_tells_the_declaration(iron):
    """Fields with their defaults, operands with their dimensions and dtypes, extents, and who has a kernel."""
    status, out, _ = iron("operators", "show", "GEMV")
    assert status == 0
    for line in ("[num_matrices], M, K", "valid    M", "repeat param 1", "lowerings: host"):
        assert line in out or line in re.sub(" +", " ", out)
    facts = json.loads(iron("operators", "show", "Copy", "--json")[1])
    assert {"x", "y"} <= {o["name"] for o in facts["operands"]} and facts["lowerings"] == ["host"]


def test_a_binary_is_told_from_what_runs_by_its_reference(iron):
    """Neither has a lowering."""
    for name, words in (("flm.Shipped", "none; it is a binary, which an NPU runs"), ("Emit", "none; it runs by its reference")):
        assert f"lowerings: {words}" in iron("operators", "show", name)[1]


def test_every_operator_can_be_shown(iron):
    """Nothing in the catalog's declarations is beyond the table."""
    for entry in json.loads(iron("operators", "list", "--json")[1]):
        status, out, err = iron("operators", "show", entry["name"])
        assert status == 0 and "<class" not in out, (entry["name"], err)


def test_run_compares_with_the_reference(iron):
    """One row a backend: the error, the contract's gate, and the time."""
    status, out, _ = iron("operators", "run", "GEMM", "M=16", "K=32", "N=8", "T=float32", "--backend", "reference,null", "--json")
    assert status == 0
    facts = json.loads(out)
    assert facts["fields"] | {"M": "16", "K": "32", "N": "8"} == facts["fields"]
    reference, null = facts["rows"]
    assert reference["gate"].startswith("ok") and reference["max_error"] < 1e-5 and reference["seconds"] > 0
    assert null["gate"] == "not run" and null["max_error"] is None and null["columns"] is None


def test_run_prints_a_table(iron):
    """Columns that do not apply are dashes."""
    status, out, _ = iron("operators", "run", "Repeat", "--backend", "reference")
    assert status == 0
    header, row = out.splitlines()[-2:]
    assert header.split()[:4] == ["backend", "device", "columns", "steps"]
    assert row.split()[:6] == ["reference", "host", "-", "1", "0", "exact"]


def test_run_moves_packed_formats(iron):
    """An output that a call writes in part begins as zeros of its own format."""
    status, out, err = iron("operators", "run", "Copy", "input_size=128", "X=q4_0", "--backend", "reference,host", "--json")
    assert status == 0, err
    assert [(row["gate"], row["max_error"]) for row in json.loads(out)["rows"]] == [("exact", 0)] * 2


def test_run_on_this_machine(iron):
    """By default: the reference and the backend a graph would get."""
    status, out, _ = iron("operators", "run", "SiLU", "size=1000", "T=float32", "--json")
    rows = json.loads(out)["rows"]
    assert status == 0 and rows[0]["backend"] == "reference"
    assert all(r["gate"].startswith("ok") for r in rows)


def test_an_operator_in_a_file_runs(iron, tmp_path):
    """`FILE.py:CLASS` is an operator of one's own, before it is in any pack."""
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    status, out, _ = iron("operators", "run", f"{file}:SquaredReLU", "size=4096", "--backend", "reference")
    assert status == 0 and "SquaredReLU size=4096" in out


def test_an_operator_out_of_its_contract_is_status_one(iron, tmp_path):
    """A gate that fails says by how much, and where."""
    file = tmp_path / "mine.py"
    state = "count = [0]\n" + OWN.replace("return y * y", "count[0] += 1\n        return y * y + count[0]")
    file.write_text(state)
    status, out, _ = iron("operators", "run", f"{file}:SquaredReLU", "--backend", "reference")
    assert status == 1 and "FAILED" in out and "the contract allows" in out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["GEMM", "M"], "'M': a field is NAME=VALUE. Fields of GEMM: M, K, N"),
        (["GEMM", "Q=3"], "GEMM has no field Q"),
        (["GEMM", "M=3"], "GEMM needs K, N"),
        (["GEMM", "M=0", "K=1", "N=1"], "M=0"),
        (["GEMMM"], "Did you mean `GEMM`?"),
        (["GEMM", "--backend", "hots"], "Did you mean host?"),
        (["GEMM", "--dev", "npu7"], "no such device"),
        (["GEMM", "T=float31", "M=1", "K=1", "N=1"], "float31"),
        (["nowhere.py:Thing"], "nowhere.py: no such file"),
    ],
)
def test_mistakes_are_one_line(iron, argv, says):
    """What was asked, and what would be legal; status 2."""
    status, out, err = iron("operators", "run", *argv)
    assert status == 2 and out == "" and err.count("\n") == 1 and says in err


def test_a_class_that_is_no_operator_is_refused(iron, tmp_path):
    """So is a file without the class, and one that does not import."""
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    assert "no Operator class" in iron("operators", "show", f"{file}:Plain")[2]
    assert "defines no Missing" in iron("operators", "show", f"{file}:Missing")[2]
    file.write_text("1/0")
    assert "does not import: ZeroDivisionError" in iron("operators", "show", f"{file}:Plain")[2]
