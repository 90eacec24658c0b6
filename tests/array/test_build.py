"""From an operator to its design: recorded once per key, refused in words where no array takes it."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core import DType, In, Operator, Out, Param, UnaryElementwise
from iron_core.array import ObjectFifo, Worker
from iron_core.array.build import Target, build, build_array, has_array
from iron_core.array.design import ArrayDesign, Design
from iron_core.declare.field import Auto
from iron_core.devices import DEVICES, device
from iron_core.errors import CallError, DeclarationError, Unresolvable
from iron_ops_aie import ElementwiseAdd, SiLU

calls = []


class Through(Operator):
    """`size` numbers through one core; counts how often it is recorded."""

    size: int = Param()
    T = DType(default=np.int32)
    tile: int = Auto(default=16)
    x = In(size, dtype=T, tile=tile)
    y = Out(size, dtype=T, tile=tile)

    def reference(self, x):
        return x

    def array(self, target):
        calls.append(target)

        def core(x, y):
            x.acquire()
            y.acquire()
            x.release()
            y.release()

        x, y = ObjectFifo(self.x.tile, name="x"), ObjectFifo(self.y.tile, name="y")
        x.prod(tile=self.x.lane(0))
        y.cons(tile=self.y.lane(0))
        Worker(core, [x.cons(), y.prod()])


class NoArray(Operator):
    size: int = Param()
    x = In(size)
    y = Out(size)

    def reference(self, x):
        return x


class NoKernel(UnaryElementwise):
    """An elementwise operator of the CPU's."""

    def reference(self, x):
        return x


class Broken(Through):
    def array(self, target):
        raise KeyError("mine")


def test_a_class_that_is_defined_again_is_built_again():
    """As in a notebook: its name and its fields are those of the one before, its array is its own."""

    def defined(tile):
        class Again(Through):
            def array(self, target):
                x, y = ObjectFifo(self.x.tile, name=f"x{tile}"), ObjectFifo(self.y.tile, name="y")
                x.prod(tile=self.x.lane(0))
                y.cons(tile=self.y.lane(0))
                Worker(lambda x, y: (x.acquire(), y.acquire(), x.release(), y.release()), [x.cons(), y.prod()])

        return Again

    first, second = defined(1), defined(2)
    for cls, fifo in ((first, "x1"), (second, "x2"), (second, "x2"), (first, "x1")):
        assert [f.name for f in build(cls(size=64), "npu2").design.array.fifos] == [fifo, "y"]


def test_a_design_is_an_array_and_a_sequence():
    design = build(Through(size=64), "npu2").design
    assert isinstance(design, Design) and isinstance(design.array, ArrayDesign)
    assert (design.array.name, design.array.dev) == ("Through", "npu2")
    assert [p.operand for p in design.sequence.arguments] == ["x", "y"]


def test_equal_operators_have_one_design():
    """However often they are asked for, and whichever way the device is named."""
    one = build(Through(size=32), "npu2", {"a"} - {"a"}).design
    assert build(Through(size=32), device("npu2"), ()).design is one
    assert build(Through(size=32).resolved("npu2"), "npu2").design is one


def test_an_array_is_recorded_once_for_every_extent():
    """What differs between two sizes is the sequence."""
    before = len(calls)
    designs = [build(Through(size=n, tile=8), "npu1").design for n in (8, 80, 800)]
    assert len(calls) == before + 1
    assert designs[0].array is designs[1].array is designs[2].array
    assert len({design.sequence for design in designs}) == 3


def test_bound_members_make_designs_not_arrays():
    op = ElementwiseAdd(size=4096)
    whole, bounded = build(op, "npu2").design, build(op, "npu2", ["valid"]).design
    assert whole.array is bounded.array and whole.sequence != bounded.sequence
    assert build(op, "npu2", iter(("valid", "valid"))).design is bounded


@pytest.mark.parametrize("name", [name for name, dev in DEVICES.items() if dev.is_npu])
def test_every_device_has_an_array_of_its_own(name):
    """No wider than the device is."""
    array = build(SiLU(size=16384), name).design.array
    assert array.dev == name and len(array.cores) <= DEVICES[name].columns


def test_the_target_says_what_the_device_offers():
    build(Through(size=48, tile=12), "npu1")
    target = calls[-1]
    assert isinstance(target, Target) and target.dev is device("npu1")


@pytest.mark.parametrize(("elements", "itemsize", "depth"), [(8192, 2, 2), (8193, 2, 1), (16384, 1, 2), (4097, 4, 1)])
def test_objects_are_held_twice_where_that_is_no_more_than_half_of_a_core(elements, itemsize, depth):
    assert Target(device("npu2")).fifo_depth(elements, itemsize) == depth


def test_a_class_is_no_operator():
    """It has no fields yet."""
    with pytest.raises(CallError, match=r"build\(\) of Through; legal: an operator with its fields"):
        build(Through, "npu2")


def test_which_operators_have_an_array():
    assert has_array(SiLU(size=64)) and has_array(Through(size=64))
    assert not has_array(NoArray(size=64))
    assert not has_array(NoKernel), "an elementwise operator without a kernel"


@pytest.mark.parametrize("ask", [build, build_array])
def test_an_operator_without_an_array(ask):
    with pytest.raises(Unresolvable, match="NoArray declares no array; it runs on the CPU"):
        ask(NoArray(size=64), "npu2")


def test_a_device_without_an_array():
    with pytest.raises(Unresolvable, match=r"Through: dev=host has no array. Legal: npu1, npu2 and their column variants"):
        build(Through(size=64), "host")


def test_a_tunable_that_cannot_hold_is_refused_before_anything_is_recorded():
    with pytest.raises(Unresolvable, match=r"SiLU: size=1000 is not whole lines of tile_size=64 .*Nearest legal size: 960 or 1024"):
        build(SiLU(size=1000, tile_size=64, num_aie_columns=1), "npu2")


def test_a_design_that_failed_is_not_kept():
    """Asked again it fails again, and what was half built is gone."""
    for _ in range(2):
        with pytest.raises(DeclarationError, match=r"Broken\.array.* KeyError: 'mine'"):
            build(Broken(size=64), "npu2")
    with pytest.raises(DeclarationError, match="while it is built"):
        ObjectFifo(((4,), "int32"))
    build(Through(size=64), "npu2")
