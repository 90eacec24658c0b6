"""`iron-run llama --profile`: tables that add up, a trace file, and what it refuses. No test looks at how long things take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from iron_llama.model import Llama

NUMBER = r"\d+(\.\d+)?"


@pytest.fixture
def run(tiny_gguf: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """The llama command line on a small Q8_0 file: (status, standard output, standard error)."""
    path = tiny_gguf("Q8_0")

    def run(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = Llama.main(["--checkpoint", str(path), "--prompt-len", "40", "--num-tokens", "6", *map(str, argv)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_a_table_per_phase_after_the_limits(run: Any) -> None:
    """On standard error: the machine's limits, then decode and prompt, each row with its columns; the text stays alone."""
    status, out, err = run("--profile")
    assert status == 0 and out == run()[1]
    lines = err.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("limits, "))
    assert re.fullmatch(
        rf"limits, \d+ threads?: read {NUMBER} GB/s · float32 {NUMBER} GFLOP/s · int8 {NUMBER} GOP/s · "
        rf"this model's weights where they lie {NUMBER} GB/s",
        lines[at],
    )
    decode = next(line for line in lines[at:] if line.startswith("decode: "))
    assert decode.startswith("decode: 5 passes of ") and any(line.startswith("prompt: 1 pass of ") for line in lines)
    gemv = next(line for line in lines if line.startswith("  GEMV q8_0"))
    assert len(gemv.replace(" %", "%").split()) == 2 + 9
    for part in (
        "MHA float16",
        "between steps",
        "weights and caches: ",
        "of the read limit",
        "kernels, ms a pass: ",
        "block_matmul<Q8_0, float>",
    ):
        assert part in err


def test_json_has_the_same_and_adds_up(run: Any, tiny: Any) -> None:
    """--json carries limits and phases: a pass is its steps and what lies between them, and bytes are the weights'."""
    found = json.loads(run("--profile", "--json")[1])["profile"]
    assert found["weights_read"] > 0
    assert set(found["limits"]) == {"threads", "read_bytes", "float_operations", "int8_operations"}
    phases = {phase["name"]: phase for phase in found["phases"]}
    assert {name: phase["passes"] for name, phase in phases.items()} == {"decode": 5, "prompt": 1}
    config = tiny.config()
    for phase in phases.values():
        inside = sum(row["seconds"] for row in phase["rows"])
        assert phase["mean"] == pytest.approx(inside + phase["between_steps"])
        assert sum(s for _, s in phase["kernels"]) == pytest.approx(inside)
        assert 0 < phase["fastest"] <= phase["median"]
        assert all(row["busy"] >= 0 and row["nbytes"] >= 0 for row in phase["rows"])
    matrices = config.num_layers * (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim * config.hidden_size
    matrices += config.num_layers * 3 * config.intermediate_size * config.hidden_size + config.vocab_size * config.hidden_size
    gemv = next(row for row in phases["decode"]["rows"] if row["kind"] == "GEMV q8_0")
    assert gemv["integer"] and gemv["operations"] == 2 * matrices
    assert gemv["nbytes"] > matrices / 32 * 34 and phases["decode"]["resident"] > matrices / 32 * 34


def test_a_trace_opens_in_perfetto(run: Any, tmp_path: Path) -> None:
    """--profile-trace alone profiles too: complete slices on named tracks, steps inside their pass, threads' shares in steps."""
    status, _, err = run("--profile-trace", tmp_path / "t.json", "--threads", 2)
    assert status == 0 and "limits, 2 threads" in err
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert tracks == {0: "run list", 1: "thread 0", 2: "thread 1"}
    slices = [e for e in events if e["ph"] == "X"]
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in slices)
    passes = [e for e in slices if e["name"] in ("decode", "prompt")]
    assert [e["name"] for e in passes] == ["prompt", *["decode"] * 5]
    assert passes[1]["args"]["position"] == 40
    steps = [e for e in slices if e["tid"] == 0 and e not in passes]
    assert steps and all(any(p["ts"] - 1 <= e["ts"] and e["ts"] + e["dur"] <= p["ts"] + p["dur"] + 1 for p in passes) for e in steps)
    assert {e["name"] for e in slices if e["tid"]} <= {e["name"] for e in steps}


@pytest.mark.parametrize(
    ("says", "argv"),
    [
        ("backend reference keeps no times of its steps. Legal: --backend host", ["--profile", "--backend", "reference"]),
        ("leave out --check-accuracy", ["--profile", "--check-accuracy"]),
    ],
)
def test_what_cannot_be_profiled_is_refused(run: Any, says: str, argv: list[str]) -> None:
    """UsageError that names the flag and what would be legal."""
    from iron_core.errors import UsageError

    with pytest.raises(UsageError, match=re.escape(says)):
        run(*argv)


def test_a_trace_that_cannot_be_written_costs_no_answer(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Text, figures and table come first; then the place is named."""
    from iron_core.errors import UsageError

    with pytest.raises(UsageError, match=r"--profile-trace /absent/t\.json: No such file or directory"):
        run("--profile-trace", "/absent/t.json")
    err = capsys.readouterr().err
    assert "tok/s" in err and "limits," in err
