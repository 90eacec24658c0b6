"""Arrays that share one configuration: their parts side by side, under names of their own."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.array import spec
from iron_core.array.build import build, build_array
from iron_core.array.fit import fit
from iron_core.array.joint import fit_joint, join
from iron_core.array.pools import fifo_pools
from iron_core.errors import Unresolvable
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd, RMSNorm, SiLU


def array(op, dev="npu2"):
    return build_array(op.resolved(dev), dev).array


NARROW = (
    GEMV(M=256, K=64, num_aie_columns=2),
    ElementwiseAdd(size=256, num_aie_columns=2),
    RMSNorm(rows=1, cols=256),
    SiLU(size=4096, num_aie_columns=2),
)


def test_it_has_every_part_of_every_member_once():
    """Well formed, in as many tiles, fifos, cores and lanes as they have together; equal arrays too get names of their own."""
    members = tuple(map(array, (*NARROW, NARROW[0])))
    joint = join(members)
    spec.check(joint.array)
    for part in ("tiles", "fifos", "links", "buffers", "locks", "cores", "lanes", "values"):
        assert len(getattr(joint.array, part)) == sum(len(getattr(member, part)) for member in members), part
    assert {kernel.symbol for kernel in joint.array.kernels} == {kernel.symbol for member in members for kernel in member.kernels}
    assert join(members) is joint


def test_each_part_is_its_members_but_for_names_and_places():
    """Undoing the prefix gives back the member, program by program and fifo by fifo."""
    members = tuple(map(array, NARROW))
    joint = join(members)
    for member, prefix in zip(members, joint.prefixes, strict=True):
        own = {core.name: core for core in member.cores}
        for core in joint.array.cores:
            if core.name.startswith(prefix):
                assert repr(core).replace(prefix, "") == repr(own.pop(core.name.removeprefix(prefix)))
        assert not own
        assert [repr(f).replace(prefix, "") for f in joint.array.fifos if f.name.startswith(prefix)] == [repr(f) for f in member.fifos]


def test_a_members_design_runs_on_the_joint_array():
    """Its sequence names the joint array's parts and is otherwise the same; equal designs are one object."""
    designs = [build(op, "npu2").design for op in NARROW]
    joint = join(tuple(design.array for design in designs))
    for design, prefix in zip(designs, joint.prefixes, strict=True):
        made = joint.design(design)
        assert made is joint.design(design) and made.array is joint.array
        assert made.sequence.arguments == design.sequence.arguments
        assert repr(made.sequence).replace(prefix, "") == repr(design.sequence)
        assert {step.fifo for step in made.sequence.transfers()} <= {fifo.name for fifo in joint.array.fifos}
        assert fit_joint(made) == fit(joint.array)


def test_it_is_placed_as_one():
    """No two cores have one place, and no channel of a tile has two users."""
    joint = join(tuple(map(array, NARROW)))
    places = fit(joint.array)
    cores = [places[tile.name] for tile in joint.array.tiles if tile.kind == "core"]
    assert len(set(cores)) == len(cores)
    used = [(places[end.tile], end.way, end.channel) for end in fifo_pools(joint.array, places).ends if end.way]
    assert len(set(used)) == len(used)


def test_arrays_that_need_more_than_there_is_are_refused():
    """By the placer, with the number used and the number there is."""
    wide = array(GEMV(M=2048, K=512))
    with pytest.raises(Unresolvable, match=r"streams go out of shims; npu2 has 16"):
        fit(join((wide, array(ElementwiseAdd(size=65536)))).array)


def test_two_that_pin_columns_stand_side_by_side():
    """Moved as they are, where all have room; the same cores twice are refused where they do not."""
    narrow = array(GEMM(M=256, K=256, N=256, num_aie_columns=4, placement="tiles"))
    columns = [tile.col for tile in narrow.tiles if tile.kind == "core"]
    assert max(columns) == 3, "this test is of one that pins its cores"
    joint = join((narrow, narrow))
    first, second = ([t.col for t in joint.array.tiles if t.name.startswith(p) and t.kind == "core"] for p in joint.prefixes)
    assert first == columns and second == [column + 4 for column in columns]
    fit(joint.array)
    with pytest.raises(Unresolvable, match=r"core.* and .*core.* are both pinned to column 0, row 2"):
        join((narrow, narrow, narrow))


def test_shims_pinned_to_one_place_are_one_tile():
    """As long as its channels suffice for both."""
    pinned = array(GEMM(M=256, K=256, N=256, num_aie_columns=2))
    free = attrs.evolve(pinned, tiles=tuple(attrs.evolve(t, col=None, row=None) if t.kind == "core" else t for t in pinned.tiles))
    shims = [(t.col, t.row) for t in pinned.tiles if t.kind == "shim"]
    members = (free,) * 5  # five times two columns: nobody is moved
    joint = join(members)
    assert [(t.col, t.row) for t in joint.array.tiles if t.kind == "shim"] == shims
    ends = {name for fifo in joint.array.fifos for name in fifo.ends()}
    assert ends <= {tile.name for tile in joint.array.tiles}


def test_control_packets_share_no_configuration():
    """They write registers of whole shims."""

    class Rows(iron.Graph):
        def __init__(self):
            self.table = iron.weight(np.zeros((512, 64), bfloat16))

        def body(self, ids):
            return Copy(self.table[ids])

    (step,) = Rows().trace(ids=((16,), np.int32)).steps
    with pytest.raises(Unresolvable, match="control packets write its shims' registers"):
        join((array(step.op), array(NARROW[0])))
