"""What cores hold: buffers in the four banks behind the stack, and programs within 16 KB, estimated or as aiecc linked them."""

from __future__ import annotations

import itertools

import attrs
import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.kernel import KernelContract
from iron_core.devices import BUFFER_ALIGNMENT, KIB
from iron_core.errors import UnsupportedError
from iron_core.image.array_image import array_image
from iron_npu.image import core_memory
from iron_npu.image.core_memory import LOOP, check_linked, cores_of, lay_out
from iron_npu.image.making import image_of
from iron_ops_aie import GEMM, SiLU

MEMORY, BANK = 64 * KIB, 16 * KIB


def laid(*sizes, stack=1024):
    return lay_out([(f"b{n}", size) for n, size in enumerate(sizes)], stack, MEMORY, "here")


def assert_apart(found, stack):
    ends = [(0, stack), *((at, at + nbytes) for _, at, nbytes in found)]
    assert all(a_end <= b for (_, a_end), (b, _) in itertools.pairwise(ends))
    assert ends[-1][1] <= MEMORY and all(at % BUFFER_ALIGNMENT == 0 for _, at, _ in found)


def test_buffers_go_the_largest_first_each_into_the_next_bank():
    """The first behind the stack; whatever order they are declared in."""
    found, banked = laid(4096, 16384, 8192, 16384, 12288)
    places = {"b1": BANK, "b3": 2 * BANK, "b4": 3 * BANK, "b2": 1024, "b0": 3 * BANK + 12288}
    assert banked and {name: at for name, at, _ in found} == places
    assert_apart(found, 1024)


def test_where_a_bank_is_too_small_they_follow_one_another():
    """An object of 32 KB lies in no bank, nor do three that fill more than what is left of each."""
    found, banked = laid(32768, 4096)
    assert not banked and [at for _, at, _ in found] == [1024, 1024 + 32768]
    assert laid(16384, 16384, 16384, 15360)[1]
    found, banked = laid(9000, 9000, 9000, 9000, 9000, stack=1024)
    assert not banked and [name for name, _, _ in found] == [f"b{n}" for n in range(5)]
    assert_apart(found, 1024)


def test_what_fits_neither_way_is_refused_by_its_largest_buffers():
    says = r"here: its stack of 2048 bytes and its buffers \(b1: 40000, b0: 20000, b2: 4000\) end at byte 6\d+ of its 65536\. Legal"
    with pytest.raises(UnsupportedError, match=says):
        laid(20000, 40000, 4000, stack=2048)


def test_all_buffers_are_named_up_to_four():
    with pytest.raises(UnsupportedError, match=r"its buffers \(b0: 30000, b1: 30000, b2: 8000, b3: 4000\) end"):
        laid(30000, 30000, 8000, 4000)
    with pytest.raises(UnsupportedError, match=r"b2: 8000, b3: 4000, \.\.\.\) end"):
        laid(30000, 30000, 8000, 4000, 100)


def test_an_array_is_laid_out_once_whatever_runs_on_it(monkeypatch):
    """Of a graph's versions and steps."""

    class Twice(iron.Graph):
        def body(self, x):
            return SiLU(SiLU(x))

    compiled = Twice().compile(dev="npu2", backend="null", x=(4096,))
    compiled.add(x=(8192,))
    plan = compiled.plan
    images = [array_image(plan, version.signature) for version in plan.versions]
    seen = []
    monkeypatch.setattr(core_memory, "cores_of", lambda array, *rest: seen.append(array))
    core_memory.check_images(images)
    assert len(seen) == len({id(step.design.array) for image in images for step in image.steps}) < 4


def test_a_stack_that_is_no_multiple_counts_as_it_lies():
    """Sums of bytes alone let this pass: 65536 in all, and the first buffer does not begin where the stack ends."""
    assert 1000 + 32768 + 31744 + 24 == MEMORY
    with pytest.raises(UnsupportedError, match=r"end at byte 655\d\d of its 65536"):
        laid(32768, 31744, 24, stack=1000)


def test_a_stack_of_more_than_a_bank_takes_of_the_next():
    found, banked = laid(16384, 12000, stack=20480)
    assert banked and min(at for _, at, _ in found) >= 20480
    assert_apart(found, 20480)


def rooms(op, dev="npu2"):
    built = build(op.resolved(iron.devices.device(dev)), dev)
    return cores_of(built.design.array, fit(built.design), built.kernels)


def test_every_core_of_a_product_is_laid_out():
    """Its objects, its words, the gap for constants; a program of its loop and its kernels."""
    found = rooms(GEMM(M=256, K=512, N=512))
    assert len(found) == 32 and all(core.banked for core in found)
    for core in found:
        assert core.gap > 0 and core.program == sum(size for _, size in core.parts) and ("its loop", LOOP) in core.parts
        assert len(core.parts) > 1


def test_a_program_that_is_estimated_too_large_is_refused(monkeypatch):
    """With what it is made of, before anything is printed."""
    built = build(SiLU(size=4096).resolved(iron.devices.device("npu2")), "npu2")
    (symbol,) = built.kernels
    monkeypatch.setattr(built.kernels[symbol], "contract", attrs.evolve(built.kernels[symbol].contract, program=16000))
    says = rf"SiLU on npu2: core \w+ has an estimated 17100 bytes of program \({symbol}: 16000, its loop: 1100\) and holds 16384"
    with pytest.raises(UnsupportedError, match=says):
        cores_of(built.design.array, fit(built.design), built.kernels)

    class One(iron.Graph):
        def body(self, x):
            return SiLU(x)

    plan = One().compile(dev="npu2", backend="null", x=(4096,)).plan
    with pytest.raises(UnsupportedError, match="17100 bytes of program"):
        image_of(plan)


def test_a_program_that_aiecc_linked_is_measured():
    """What it reports counts, not the estimate."""
    check_linked({"SiLU_0_core_0_2": 16384}, "One", "npu2")
    with pytest.raises(UnsupportedError, match=r"One on npu2: core b_core_1_3 has 16388 bytes of program, as aiecc linked it, and"):
        check_linked({"a_core_0_2": 900, "b_core_1_3": 16388}, "One", "npu2")


def test_the_estimate_is_what_kernels_say_of_themselves():
    assert KernelContract(roles=(), reference=lambda: None).program == 1100
    assert core_memory.BANKS * BANK == MEMORY


def test_a_size_that_is_known_counts_in_place_of_the_estimate(monkeypatch):
    """An estimate that is too large is passed by what aiecc reported, and one that is small is refused by it, naming what is linked."""
    built = build(SiLU(size=4096).resolved(iron.devices.device("npu2")), "npu2")
    (symbol,) = built.kernels
    placement = fit(built.design)
    places = [placement[core.tile] for core in built.design.array.cores]
    found = cores_of(built.design.array, placement, built.kernels, lambda array, where: {places[0]: 16384})
    assert [(core.measured, core.program) for core in found] == [(True, 16384)] + [(False, 2200)] * (len(found) - 1)
    says = rf"has 16388 bytes of program, as aiecc linked it of {symbol}, its loop, and holds 16384\. Legal: fewer kernels on the core"
    with pytest.raises(UnsupportedError, match=says):
        cores_of(built.design.array, placement, built.kernels, lambda array, where: {places[-1]: 16388})
    monkeypatch.setattr(built.kernels[symbol], "contract", attrs.evolve(built.kernels[symbol].contract, program=16000))
    assert cores_of(built.design.array, placement, built.kernels, lambda array, where: dict.fromkeys(places, 9000))
