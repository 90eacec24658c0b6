"""Whatever a tunable of the CPU's lowerings is set to, no bit of a result changes."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from iron_core.backends.measuring import Run, RunList
from iron_core.declare.formats import as_format
from iron_core.declare.identity import label
from iron_core.lowering import lowering_for
from iron_host import measure
from iron_host.backend import HostBackend
from iron_host.measure import Loaded
from iron_ops_aie import GEMM, GEMV, MHA, CombineExperts, ElementwiseAdd, GatedExperts, PagedMHA, RMSNorm, Softmax

HEADS = dict(num_heads=6, num_KV_heads=2, d=32, heads_interleaved=True, kv_interleaved=True, causal=True)
BLOCKS = dict(activations="int8_block", T=np.float32, O=np.float32)
RUNS = [
    Run(GEMV(M=1003, K=96, W=as_format("q4_1"), **BLOCKS)),
    Run(GEMV(M=40, K=4096, W=as_format("q8_0"), **BLOCKS), members={"valid": 33}),
    Run(GEMV(M=515, K=200)),
    Run(GEMM(M=71, K=96, N=83, W=as_format("q4_1"), b_col_maj=True, **BLOCKS)),
    Run(GEMM(M=291, K=64, N=24, W=as_format("q4_1"), b_col_maj=True, **BLOCKS), members={"valid": 290}),
    Run(MHA(seq_len=1, kv_len=300, **HEADS), members={"kv_valid": 251}),
    Run(MHA(seq_len=90, kv_len=131, **HEADS)),
    Run(RMSNorm(rows=64, cols=768)),
    Run(Softmax(rows=90, cols=1024)),
    Run(ElementwiseAdd(size=100_003)),
    Run(GatedExperts(rows=3, k=2, experts=4, hidden=96, inner=200, W=as_format("q4_0"), **BLOCKS)),
    Run(CombineExperts(rows=3, k=2, experts=4, hidden=200, inner=96, W=as_format("q8_0"), **BLOCKS)),
    Run(PagedMHA(rows=70, num_heads=6, num_KV_heads=2, d=32, pages=7, sequences=4, most=3), members={"valid": 61}),
]


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    """One copy of each run: none is timed."""
    monkeypatch.setattr(measure, "COLD", 1)


def written(run: Run, **tunables) -> dict[str, str]:
    """Digests of what a run writes, by operand, on four threads."""
    loaded = Loaded(HostBackend(threads=4, strict=True), RunList("one", (Run(run.op, run.members, tunables),)))
    return {name: hashlib.sha256(np.ascontiguousarray(array)).hexdigest() for (_, name), array in loaded.outputs().items()}


def settings():
    """Every run with every tunable that is searched for it. Those that kernels are compiled for take long."""
    for run in RUNS:
        for name, values in lowering_for("host", run.op).domains(run.op, "host").items():
            if len(values) > 1:
                slow = [pytest.mark.slow] if name in ("rows", "together") else []
                yield pytest.param(run, name, values, id=f"{label(run.op)[:24]}-{name}", marks=slow)


@pytest.mark.parametrize(("run", "name", "values"), list(settings()))
def test_no_setting_changes_a_bit(run, name, values):
    """Each value of a tunable against the default."""
    want = written(run)
    for value in values:
        assert written(run, **{name: value}) == want, value


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=lambda run: label(run.op)[:24])
def test_all_of_them_together_change_no_bit(run):
    """Every tunable at its last value."""
    domains = lowering_for("host", run.op).domains(run.op, "host")
    assert written(run, **{name: values[-1] for name, values in domains.items()}) == written(run)


def test_domains_follow_the_operator():
    """What has no effect on an operator is not searched for it: one value."""
    kinds = dict(blocks=RUNS[0], dense=RUNS[2], rows=RUNS[3], one=RUNS[5], many=RUNS[6], gated=RUNS[10], combine=RUNS[11], paged=RUNS[12])
    searched = {
        kind: {name for name, values in lowering_for("host", run.op).domains(run.op, "host").items() if len(values) > 1}
        for kind, run in kinds.items()
    }
    everywhere = {"threads", "parts"}
    assert searched == {
        "blocks": everywhere | {"ahead"},
        "dense": everywhere,
        "rows": everywhere | {"rows", "x_rows"},
        "one": everywhere | {"together", "ahead"},
        "many": everywhere | {"together", "block"},
        "gated": everywhere | {"ahead"},
        "combine": everywhere | {"ahead"},
        "paged": everywhere | {"block", "ahead"},
    }
