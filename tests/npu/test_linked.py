"""Sizes of programs that aiecc reported: kept by array where it ran, and known wherever an image of that array is made after."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import iron_core as iron
from iron_core.cache.store import CacheWarning
from iron_core.errors import UnsupportedError
from iron_npu import building
from iron_npu.backend import NpuBackend
from iron_npu.image.making import image_of
from iron_npu.linked import linked
from iron_npu.tools.build import build
from iron_npu.tools.program_size import program_sizes
from iron_ops_aie import GEMV, SiLU
from tests.npu import fake_aie
from tests.npu.test_whole_builds import forget
from tests.npu.vendor import Vendor, core_elf

PACKAGINGS = {"elf": {}, "chain": {"boundaries": iron.each_step}, "contexts": {"image": iron.CONTEXTS}}


class Two(iron.Graph):
    """A product, and what each of its rows becomes."""

    def __init__(self):
        self.w = np.ones((64, 64), iron.bfloat16)

    def body(self, x):
        return SiLU(GEMV(self.w, x))


def planned(**options):
    return Two().compile(x=(64,), dev="npu2", backend="null", **options).plan


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """The stand-ins, which say of each array's core at (0, 2) alone how large it is."""
    made = Vendor.install(tmp_path / "tools", tmp_path / "cache")
    fake_aie.install_any(made.folder / "mlir-aie" / "python")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    for name, place in (("MLIR_AIE_INSTALL_DIR", "mlir-aie"), ("PEANO_INSTALL_DIR", "peano"), ("XILINX_XRT", "xrt")):
        monkeypatch.setenv(name, str(made.folder / place))
    yield made
    forget()


def told(plan, settings):
    """What is known of the programs of each array of a plan's image."""
    steps = NpuBackend().compile(plan, plan.versions[0].signature).steps
    return [dict(linked(settings)(step.design.array, step.placement)) for step in steps]


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_what_a_build_reports_is_known_of_its_arrays(vendor, packaging):
    """However they are packaged, and in another packaging too: a core is known by what its array is."""
    assert told(planned(), vendor.settings) == [{}, {}]
    build(image_of(planned(**PACKAGINGS[packaging])), vendor.settings)
    for other in PACKAGINGS.values():
        assert told(planned(**other), vendor.settings) == [{(0, 2): 0x1234}, {(0, 2): 0x1234}]


def test_a_program_that_was_linked_too_large_is_refused_when_it_is_compiled(vendor):
    """Before anything is built; as long as the tools are those that linked it."""
    plan = planned(boundaries=iron.each_step)
    compiled = NpuBackend().compile(plan, plan.versions[0].signature)
    (vendor.folder / "core-elf").write_text(core_elf((5, 0, 0x4004)).hex())
    with pytest.raises(UnsupportedError, match=r"core main_core_0_2|core 0_main_core_0_2"):
        building.files(compiled)
    calls = len(vendor.calls())
    says = r"on npu2: core \w+ has 16388 bytes of program, as aiecc linked it of [\w, ]+, its loop, and holds 16384\. Legal"
    with pytest.raises(UnsupportedError, match=says):
        NpuBackend().compile(plan, plan.versions[0].signature)
    assert len(vendor.calls()) == calls
    vendor.edited("clang++")
    assert NpuBackend().compile(plan, plan.versions[0].signature).image.kind == "xclbin"
    (vendor.folder / "mlir-aie" / "bin" / "aiecc").unlink()
    with pytest.raises(UnsupportedError, match=r"16388 bytes of program, as aiecc linked it"):
        NpuBackend().compile(plan, plan.versions[0].signature)


def test_nothing_is_kept_of_sources_that_are_given(vendor):
    """Each change of theirs counts, and they are not what an array is known by."""
    plan = planned(boundaries=iron.each_step)
    build(image_of(plan), vendor.with_(kernel_sources=vendor.folder))
    assert told(plan, vendor.settings) == [{}, {}]


def test_a_cache_that_cannot_be_used_knows_nothing(vendor, tmp_path):
    plan = planned(boundaries=iron.each_step)
    build(image_of(plan), vendor.settings)
    (tmp_path / "cache").chmod(0o777)
    with pytest.warns(CacheWarning, match=r"others may write to it"):
        assert told(plan, vendor.settings) == [{}, {}]


def test_every_linked_core_is_of_an_array_that_is_told(vendor):
    """What `program_sizes` has of a chain names its links."""
    image = image_of(planned(boundaries=iron.each_step))
    (built,) = build(image, vendor.settings)
    assert sorted(program_sizes(built.folder)) == ["0_main_core_0_2", "1_main_core_0_2"]
    assert [[device for device, _ in module.arrays] for module in image.modules] == [["main"], ["main"]]
    assert len({digest for module in image.modules for _, digest in module.arrays}) == 2
