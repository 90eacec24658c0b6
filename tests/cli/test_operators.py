"""`iron operators show` and `iron operators run`."""

from __future__ import annotations

import json
import re

import pytest

from iron_core.cli import operator_tests

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


def rows(iron, *argv):
    """(backend, device) -> the row that says who takes an operator."""
    return {(row["backend"], row["device"]): row for row in json.loads(iron("operators", "show", *argv, "--json")[1])["takers"]}


def test_show_says_who_takes_an_operator_device_by_device(iron):
    """By what; or why not, with the rule and what would be legal. Backends that run nothing are not asked."""
    found = rows(iron, "GEMM", "M=300", "K=512", "N=512")
    assert {("host", "host"), ("sim", "npu1"), ("sim", "npu2"), ("npu", "npu1"), ("npu", "npu2")} <= set(found)
    assert not any(backend == "null" for backend, _ in found)
    assert found["host", "host"]["takes"] and found["host", "host"]["how"].startswith("kernel")
    for dev, legal in (("npu1", "256 or 320"), ("npu2", "288 or 320")):
        refused = found["sim", dev]
        assert not refused["takes"] and refused["how"] == found["npu", dev]["how"]
        assert refused["how"].startswith("GEMM: M=300;") and refused["how"].endswith(f"Nearest legal M: {legal}.")
    assert found["sim", "npu1"]["case"] == "", "of the fields that are given"


def test_without_fields_it_is_asked_for_test_cases(iron):
    """Of the first that is taken; a table's rows are the same."""
    found = rows(iron, "flm.DequantBFP")
    assert found["sim", "npu2"] == {
        "backend": "sim", "device": "npu2", "takes": True, "case": "N64-K512", "how": "array of 4 cores and 8 fifos",
    }  # fmt: skip
    assert not found["sim", "npu1"]["takes"] and "no block floating point" in found["sim", "npu1"]["how"]
    text = re.sub(" +", " ", iron("operators", "show", "flm.DequantBFP")[1])
    assert "sim npu2 yes N64-K512 array of 4 cores and 8 fifos" in text and "sim npu1 no N64-K512 DequantBFP: dev=npu1" in text


def test_one_device_may_be_asked_about(iron):
    """A column variant too; the CPU's backends answer beside it."""
    found = rows(iron, "SiLU", "size=4096", "--dev", "npu2_1col")
    assert {dev for _, dev in found} == {"host", "npu2_1col"} and found["sim", "npu2_1col"]["how"] == "array of 1 cores and 2 fifos"
    status, out, err = iron("operators", "show", "GEMM", "M=300", "K=512", "N=512", "--dev", "npu2")
    assert status == 0 and "Nearest legal M: 288 or 320" in re.sub(r"\s+", " ", out) and "cores      " not in out, err


def test_a_backend_that_does_not_load_is_told(iron, site):
    """In its row, beside those that do."""
    site.add("iron-odd", entries={"iron.backends.v1": {"odd": "odd:Odd"}}, modules={"odd.py": "raise ValueError('no room')"})
    found = rows(iron, "SiLU", "size=4096")
    assert not found["odd", "-"]["takes"] and "no room" in found["odd", "-"]["how"] and found["sim", "npu2"]["takes"]


def test_show_prints_mlir(iron):
    """Of the array and its sequence, as the backend that builds them prints it; on its first device, or on one that is named."""
    status, out, _ = iron("operators", "show", "SiLU", "size=4096", "--mlir", "--dev", "npu1")
    assert status == 0 and out.startswith("module {\n  aie.device(npu1)") and "aie.runtime_sequence" in out
    facts = json.loads(iron("operators", "show", "SiLU", "--mlir", "--json")[1])
    assert facts["device"] in ("npu1", "npu2") and facts["mlir"].startswith("module {")
    status, _, err = iron("operators", "show", "GEMM", "M=300", "K=512", "N=512", "--mlir", "--dev", "npu2")
    assert status == 2 and "Nearest legal M: 288 or 320" in err
    assert "npu prints nothing for dev=host. Legal: npu" in iron("operators", "show", "SiLU", "--mlir", "--dev", "host")[2]


def test_without_a_backend_that_prints_it_says_so(iron, monkeypatch):
    monkeypatch.setattr("iron_core.backends.choose.names", lambda: ("host", "sim"))
    status, _, err = iron("operators", "show", "SiLU", "--mlir")
    assert status == 2 and "no backend that is installed prints what it makes of an operator; iron-npu's prints MLIR." in err


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


# -- iron operators test ---------------------------------------------------------------------------

TWO = (
    OWN.replace("Case(size=64)", "Case(size=64), Case(size=512, bounds=dict(valid=300))").replace(
        "import Case, Testing", "import Case, In, Kernel, KernelContract, Out, Param, Testing"
    )
    + """
SOURCE = '''
#include <stdint.h>
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++) y[i] = x[i] & 0x7FFF;
}
'''

class Absolute(iron.UnaryElementwise):
    test = Testing(Case(size=512, lower=True), draw=dict(centered=("x",)))
    def reference(self, x):
        return np.abs(x)
    def kernel(self):
        contract = KernelContract((In, Out, Param), lambda x, n: np.abs(x), ((2, self.tile_size),), elementwise=True)
        return Kernel.inline("absolute", SOURCE, (self.x.tile, self.y.tile, np.int32), contract)
"""
)


def test_test_tries_every_case_on_every_backend(iron, tmp_path):
    """A row each, bounds among them; the C++ of an array's kernels is a row of its own."""
    file = tmp_path / "mine.py"
    file.write_text(TWO)
    status, out, _ = iron("operators", "test", f"{file}:SquaredReLU", f"{file}:Absolute", "--json")
    facts = json.loads(out)
    places = {(row["operator"], row["case"], row["backend"], row["device"]) for row in facts["rows"]}
    assert status == 0 and facts["failed"] == 0 and facts["compared"] == len([r for r in facts["rows"] if r["compared"]])
    assert {("SquaredReLU", case, "host", "host") for case in ("size64", "size512-valid300")} <= places
    assert {("Absolute", "size512", "sim", dev) for dev in ("npu1", "npu2")} <= places
    compiled = [row for row in facts["rows"] if row["backend"] == "kernels"]
    assert compiled and all(row["verdict"] in ("exact", "skipped") for row in compiled)


def test_test_names_what_fails_and_is_status_one(iron, tmp_path):
    """C++ that is none, which the simulator does not see: the case, and the compiler's words."""
    file = tmp_path / "mine.py"
    file.write_text(TWO.replace("x[i] & 0x7FFF", "no_such_thing"))
    status, out, _ = iron("operators", "test", f"{file}:Absolute", "--dev", "npu2", "--backend", "sim,kernels")
    if "skipped" in out:
        pytest.skip("no C++ compiler")
    assert status == 1 and "1 compared, 0 refused, 1 failed" in out
    assert re.search(r"size512 on kernels npu2: kernel absolute_\w+: .* does not compile its C\+\+: .*no_such_thing", out)


def test_test_takes_bounds_for_every_case(iron, tmp_path):
    """A case that is smaller is refused in words; where nothing at all was compared, that is a failure."""
    file = tmp_path / "mine.py"
    file.write_text(TWO)
    own = f"{file}:SquaredReLU"
    status, out, _ = iron("operators", "test", own, "--backend", "reference", "--bound", "valid=100", "--json")
    rows = json.loads(out)["rows"]
    assert status == 0 and [(row["case"], row["verdict"]) for row in rows] == [("size64-valid100", "refused"), ("size512-valid100", "ok")]
    assert rows[0]["says"] == "SquaredReLU: valid=100; legal: 1 to 64."
    assert rows[1]["bound"] > 0
    assert iron("operators", "test", own, "--backend", "reference", "--bound", "valid=600")[0] == 1


def test_test_takes_the_name_of_a_distribution():
    """All of its operators, and none twice where one is named besides."""
    found = operator_tests.classes(("iron-ops-flm", "flm.GEMM", "SiLU"), everything=False)
    assert [cls.__name__ for cls in found] == ["DequantBFP", "GEMM", "Shipped", "SiLU"]
    assert {cls.__name__ for cls in operator_tests.classes((), everything=True)} >= {"DequantBFP", "SiLU"}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "legal: names of operators or of distributions, or --all"),
        (["SiLU", "--all"], "legal: names of operators or of distributions, or --all"),
        (["SiLU", "--bound", "valid"], "--bound valid: legal: EXTENT=NUMBER"),
        (["SiLU", "--backend", "reference", "--bound", "rows=3"], "SiLU has no extent rows. Its extents: valid"),
        (["SiLUU"], "Did you mean `SiLU`?"),
    ],
)
def test_mistakes_of_test_are_one_line(iron, argv, says):
    """Status 2."""
    status, out, err = iron("operators", "test", *argv)
    assert status == 2 and out == "" and err.count("\n") == 1 and says in err
