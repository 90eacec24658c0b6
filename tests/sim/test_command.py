"""`iron sim`: the table, JSON, and the exit status."""

from __future__ import annotations

import json
import re

import pytest

from iron_core import Operator
from iron_core.errors import UnknownName, UnsupportedError
from iron_ops_aie import SiLU
from iron_sim import command
from iron_sim.command import main
from iron_sim.timing.cases import timings


@pytest.fixture
def wrong(monkeypatch):
    """SiLU with a composition that is wrong in one number."""
    composed = SiLU.composed

    def other(self, *inputs):
        out = composed(self, *inputs)
        out.reshape(-1).view("uint16")[0] ^= 1
        return out

    monkeypatch.setattr(SiLU, "composed", other)


@pytest.fixture
def bare(monkeypatch):
    """SiLU without its array."""
    monkeypatch.setattr(SiLU, "array", Operator.array)


def test_a_table_of_one_operator(capsys):
    assert main(["SiLU", "--dev", "npu1"]) == 0
    out = capsys.readouterr().out
    assert "size4096" in out and "0 of 4096" in out
    assert "5 simulated, 6 refused, 0 failed" in out and "size1000" not in out
    assert main(["SiLU", "--dev", "npu1", "--refused"]) == 0
    assert re.search(r"^SiLU +size1000 +npu1 +SiLU: size=1000 is not", capsys.readouterr().out, re.M)


def test_refusals_are_counted_by_their_rule(capsys):
    """In a table of their own, with the operators and devices that they are of."""
    assert main(["SiLU", "RoPE", "--dev", "npu1,npu2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "16       SiLU, RoPE on npu1, npu2  T=..; its array computes on bfloat16." in lines


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_tables_are_within_the_width(capsys, monkeypatch, columns):
    """That of the terminal, or of COLUMNS; rules go on in further lines, long names are cut."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["SiLU", "--dev", "npu1,npu2", "--refused"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert re.search(r"size=\.\. is not whole\s+lines of\s", out)


def test_a_device_of_fewer_columns_may_refuse_what_a_whole_one_takes(capsys):
    """Three cores, of which each needs a channel for itself, are no failure of a device of one column."""
    assert main(["Sample", "--dev", "npu2_1col"]) == 0
    assert "3 simulated, 1 refused, 0 failed" in capsys.readouterr().out
    assert main(["Sample", "--dev", "npu2"]) == 0
    assert "4 simulated, 0 refused, 0 failed" in capsys.readouterr().out


def test_the_extensive_cases_sweep_columns_and_channels(capsys, monkeypatch):
    """Each count that this device's shims feed is simulated; wider ones are refused by the count that is legal."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["SiLU", "--dev", "npu1", "--extensive", "--refused"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("SiLU")}
    for columns in (1, 2, 3, 4, 6, 8):
        for channels in (1, 2):
            line = lines[f"size12288-num_aie_columns{columns}-num_channels{channels}"]
            assert ("0 of 12288" if columns <= 4 else "Nearest legal num_aie_columns: 4.") in line


def test_json(capsys):
    assert main(["SiLU", "--dev", "npu1,npu2", "--seed", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seed"] == 3
    assert {(row["operator"], row["dev"]) for row in found["rows"]} == {("SiLU", "npu1"), ("SiLU", "npu2")}
    assert all(row["bits"] == 0 and not row["failure"] for row in found["rows"])
    assert list(found["refusals"].values()) == [10, 2] and "T=..; its array computes on bfloat16." in found["refusals"]


def test_a_failure_is_told_and_is_the_exit_status(capsys, wrong):
    assert main(["SiLU", "--dev", "npu1"]) == 1
    out = capsys.readouterr().out
    assert "5 simulated, 6 refused, 5 failed" in out and "FAILED" in out
    assert "SiLU size4096 on npu1: 1 of 4096 numbers differ from the composed tile references" in out


def test_an_operator_without_an_array_is_refused(capsys, bare):
    """In words; and as nothing was compared, that is no success."""
    assert main(["SiLU", "--dev", "npu1"]) == 1
    assert "SiLU declares no array; it runs on the CPU" in capsys.readouterr().out


def test_all_that_declare_an_array_if_none_is_named(capsys, monkeypatch, bare):
    """Asked of the classes; none is simulated here."""
    asked = []
    monkeypatch.setattr(command, "outcomes", lambda classes, devices, *rest: asked.append((*classes, devices)) or iter(()))
    assert main([]) == 1
    names = {cls.__name__ for cls, _ in asked}
    assert {"ReLU", "ElementwiseAdd", "GEMV", "GEMM", "MHA", "Copy"} <= names and "SiLU" not in names
    assert all(devices == ["npu1", "npu2"] for _, devices in asked)


def test_a_device_that_is_none():
    with pytest.raises(UnknownName, match="dev='npu3': no such device"):
        main(["SiLU", "--dev", "npu3"])
    with pytest.raises(UnsupportedError, match=r"dev='host' has no array to simulate. Legal: npu1, npu2"):
        main(["SiLU", "--dev", "host"])


def test_the_program_has_the_command(iron_command):
    run = iron_command("sim", "--help")
    assert run.returncode == 0 and "simulated NPU arrays" in run.stdout


def test_with_time_cases_are_clocked_and_not_computed(capsys, wrong):
    """So nothing of what they compute can fail."""
    assert main(["SiLU", "--dev", "npu1", "--time"]) == 0
    out = capsys.readouterr().out
    assert "size4096" in out and "load us" in out
    assert "5 simulated, 6 refused" in out


def test_a_time_says_what_is_busiest():
    ran = [one for one in timings([SiLU], ["npu2"]) if not one.refused]
    assert ran and all(one.us > 0 and 0 < one.share <= 1 and one.busiest for one in ran)
    us = {one.case: one.us for one in ran}
    assert us["size64"] < us["size1048576"]


def test_with_time_there_must_be_a_case_too(bare):
    assert main(["SiLU", "--dev", "npu2", "--time"]) == 1
