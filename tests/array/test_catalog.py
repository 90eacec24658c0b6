"""Every operator's array, at each of its cases that a device takes: well formed, within its limits, placed and routed."""

from collections import Counter

import pytest

import iron_ops_aie
from iron_core.array.build import build, has_array
from iron_core.array.limits import check as limits
from iron_core.array.router import place_and_route
from iron_core.array.spec import check as spec
from iron_core.declare.cases import cases
from iron_core.devices import device
from iron_core.errors import IronError
from tests.catalog import PLACES, named


def designs(cls, dev):
    """Designs of a class's cases, without and with everything that calls can give."""
    members = tuple(cls.extents) + tuple(cls.scratchpads)
    for _, case, _ in cases([cls], extensive=True):
        try:
            op = cls(**case.fields)
        except IronError:
            continue
        for bound in ((), members) if members else ((),):
            try:
                yield case, bound, build(op, dev, bound).design
            except IronError:  # this device does not take that case
                continue


@pytest.mark.parametrize(("cls", "dev"), PLACES, ids=named)
def test_arrays_fit(cls, dev):
    """Among them all that are declared to have an array, at least three."""
    built: Counter[str] = Counter()
    checked, places = set(), {}
    for case, bound, design in designs(cls, dev):
        built[case.id] += not bound
        if id(design) in checked:  # equal designs are one object, which `build` keeps, and so are equal arrays
            continue
        checked.add(id(design))
        if id(design.array) not in places:
            places[id(design.array)] = place_and_route(design.array, device(dev))[0]
        spec(design)
        limits(design, dev, places[id(design.array)])
    assert sum(built.values()) >= 3
    assert {case.id for _, case, _ in cases([cls], extensive=True) if case.lower} <= set(built)


LARGE = [
    ("GEMM", dict(M=2048, K=2048, N=2048)),
    ("GEMV", dict(M=8192, K=2048)),
    ("MHA", dict(num_heads=32, num_KV_heads=8, seq_len=2048, d=64)),
    ("ElementwiseAdd", dict(size=1 << 20)),
    ("SiLU", dict(size=1 << 20, num_channels=2)),
    ("Copy", dict(input_size=512 * 4096, gather=True, table_rows=4096, rows=64)),
]


@pytest.mark.parametrize("name, fields", LARGE, ids=[name for name, _ in LARGE])
def test_whole_arrays_fit(name, fields):
    op = getattr(iron_ops_aie, name)(**fields)
    assert has_array(op)
    design = build(op, "npu2").design
    spec(design)
    places, routes = place_and_route(design.array, device("npu2"))
    limits(design, "npu2", places)
    assert {one.flow.name for one in routes} <= {f.name for f in (*design.array.fifos, *design.array.controls)}
