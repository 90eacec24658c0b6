"""Kernels that mlir-aie hosts: what its factories are asked for, and where what they promise is not what a kernel does."""

from __future__ import annotations

import os
import sys

import attrs
import numpy as np
import pytest

from iron_core.array import Kernel, KernelContract
from iron_core.declare.field import Param
from iron_core.declare.objects import ObjectType
from iron_core.declare.operand import In, InOut, Out
from iron_core.declare.tolerance import Tolerance
from iron_npu.errors import KernelMismatch, MissingTool
from iron_npu.settings import Settings
from iron_npu.tools import factory
from tests.npu import fake_aie
from tests.npu.vendor import Vendor

LINE = ObjectType.of(64, "int32")
CONTRACT = KernelContract(roles=(In, Out, Param), reference=lambda x, n: 2 * x, bindings=((2, 64),), tolerance=Tolerance(exact=True))


@pytest.fixture
def aie(tmp_path, monkeypatch):
    """mlir-aie's Python, importable in this test alone; gives its module of kernels."""
    monkeypatch.syspath_prepend(str(fake_aie.install(tmp_path / "python")))
    for name in [name for name in sys.modules if name.partition(".")[0] == "aie"]:
        monkeypatch.delitem(sys.modules, name)
    yield factory.module("aie.iron.kernels", Settings())
    for name in [name for name in sys.modules if name.partition(".")[0] == "aie"]:
        del sys.modules[name]


def double(contract: KernelContract = CONTRACT, arguments=(LINE, LINE, np.int32), dotted="eltwise.double_sized", **keywords) -> Kernel:
    return Kernel.factory(dotted, arguments, contract, **({"tile_size": 64} | keywords))


def source(kernel: Kernel, dev: str = "npu2", whole: bool = False) -> factory.Source:
    return factory.source([kernel.data], dev, Settings(), {kernel.data.symbol: kernel} if whole else None)


@pytest.mark.parametrize(("dev", "arch"), [("npu1", "aie2"), ("npu2", "aie2p"), ("npu2_4col", "aie2p")])
def test_a_factory_is_called_for_the_device(aie, dev, arch):
    """With the kernel's keywords, names of dtypes as classes; the current device is as before afterwards."""
    kernel = double(dtype=np.int32)
    given = source(kernel, dev)
    assert given.text.startswith('#include "/') and given.text.endswith(f'/{arch}/double.cc"\n')
    assert given.symbols == {kernel.data.symbol: "double_int32"} and given.flags == ("-DTILE=64",)
    assert given.include[0].endswith(arch) and given.include[1].endswith("include")
    import aie.iron as iron

    assert iron.get_current_device() is None


@pytest.mark.parametrize("held", [None, "/before"])
def test_sources_of_the_settings_come_before_mlir_aies(aie, monkeypatch, tmp_path, held):
    """For the time of the call: the variable is as before afterwards."""
    monkeypatch.delenv("MLIR_AIE_KERNEL_SOURCES", raising=False)
    if held:
        monkeypatch.setenv("MLIR_AIE_KERNEL_SOURCES", held)
    given = factory.source([double().data], "npu2", Settings(kernel_sources=tmp_path / "mine"))
    assert given.text == f'#include "{tmp_path}/mine/aie2p/double.cc"\n'
    assert os.environ.get("MLIR_AIE_KERNEL_SOURCES") == held


def test_functions_of_one_factory_are_one_source(aie):
    one, other = double(), double(symbol="halve")
    given = factory.source([one.data, other.data], "npu2", Settings())
    assert given.symbols == {one.data.symbol: "double_int32", other.data.symbol: "halve"}


def test_a_factory_without_a_contract_is_taken_at_its_word(aie):
    contract = KernelContract(roles=(), reference=lambda: ())
    kernel = double(contract, (), "eltwise.old")
    assert source(kernel).text == 'extern "C" void old() {}' and source(kernel).symbols == {kernel.data.symbol: "old"}


def test_another_whole_contract_agrees(aie):
    assert source(double(), whole=True)


MISMATCHES = {
    "a factory that is not there": (dict(dotted="eltwise.triple"), "aie.iron.kernels.eltwise.triple, which this mlir-aie does not have: "),
    "a module that is not there": (dict(dotted="odd.double"), "which this mlir-aie does not have: aie.iron.kernels has no odd."),
    "a keyword it does not take": (dict(cols=8), "got an unexpected keyword argument 'cols'. Legal: tile_size, dtype."),
    "a value that it refuses": (dict(tile_size=65), r"tile_size=65) is refused: tile_size=65 is no multiple of 16"),
    "no source": (dict(dotted="eltwise.binary", contract=KernelContract((), lambda: ()), arguments=()), "gave no C++ source, but Bound."),
    "fewer arguments": (
        dict(contract=KernelContract((In, Out), lambda x: x), arguments=(LINE, LINE)),
        "arguments are 2 here, and 3 of aie.iron.kernels.eltwise.double_sized in this mlir-aie.",
    ),
    "another length": (
        dict(arguments=(LINE, ObjectType.of(32, "int32"), np.int32)),
        "argument 1 is 32 int32 here, and 64 int32 of aie.iron.kernels.eltwise.double_sized",
    ),
    "another dtype": (dict(arguments=(LINE, ObjectType.of(64, "float32"), np.int32)), "argument 1 is 64 float32 here, and 64 int32 of"),
    "another scalar": (dict(arguments=(LINE, LINE, np.float32)), "argument 2 is float32 here, and int32 of"),
    "other roles": (
        dict(contract=attrs.evolve(CONTRACT, roles=(In, InOut, Param))),
        "roles are in, inout, param here, and in, out, param of",
    ),
    "less stack": (dict(contract=attrs.evolve(CONTRACT, stack=256)), "a call takes 256 bytes of stack here, and 512 bytes of"),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_what_does_not_agree_is_one_line_that_names_both(aie, case):
    changed, said = MISMATCHES[case]
    kernel = double(**changed)
    with pytest.raises(KernelMismatch) as caught:
        source(kernel)
    assert said in str(caught.value) and f"kernel {kernel.data.symbol}" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("named", ["npu2", "aie2p", "AIE2P"])
def test_a_device_that_mlir_aie_does_not_support(aie, named, monkeypatch):
    plain = aie.eltwise.double_sized

    def narrow(tile_size=64, dtype=np.int32):
        fn = plain(tile_size, dtype)
        fn.contract.unsupported = (named,)
        return fn

    monkeypatch.setattr(aie.eltwise, "double_sized", staticmethod(narrow))
    assert source(double(), "npu1")
    with pytest.raises(KernelMismatch, match=r"npu2 is supported here, and not supported of aie\.iron\.kernels\.eltwise\.double_sized"):
        source(double())


def test_what_is_computed_is_compared_where_the_whole_contract_is_at_hand(aie):
    """Exactness, and what comes out; a kernel alone has neither."""
    shorter = double(attrs.evolve(CONTRACT, reference=lambda x, n: x[:32]))
    assert source(shorter)
    with pytest.raises(KernelMismatch, match=r"on zeros it gives 32 elements here, and 64 elements of"):
        source(shorter, whole=True)


def test_draft_roles_and_tolerances_are_understood(aie, monkeypatch):
    """Roles as texts, as earlier contracts had them; one that is not exact."""
    plain = aie.eltwise.double_sized

    def draft(tile_size=64, dtype=np.int32):
        fn = plain(tile_size, dtype)
        fn.contract.roles, fn.contract.tolerance.exact = ("in", "out", "count"), False
        return fn

    monkeypatch.setattr(aie.eltwise, "double_sized", staticmethod(draft))
    assert source(double())
    with pytest.raises(KernelMismatch, match=r"results are exact here, and within a tolerance of"):
        source(double(), whole=True)


def test_without_mlir_aies_python_the_error_says_what_to_install(tmp_path):
    with pytest.raises(MissingTool, match=r"npu: mlir-aie's Python is not installed: No module named 'aie'.*MLIR_AIE_INSTALL_DIR"):
        factory.module("aie.iron", Settings(path=str(tmp_path)))


def test_what_mlir_aies_python_lacks_is_named(aie, tmp_path):
    (tmp_path / "python" / "aie" / "iron" / "broken.py").write_text("import no_such_module\n")
    with pytest.raises(MissingTool, match=r"mlir-aie's Python \(aie.iron.broken\) cannot be imported: No module named 'no_such_module'"):
        factory.module("aie.iron.broken", Settings())


def test_its_python_is_found_beside_its_programs(tmp_path, monkeypatch):
    """Nobody has to set PYTHONPATH."""
    vendor = Vendor.install(tmp_path / "tools", tmp_path / "cache")
    fake_aie.install(vendor.folder / "mlir-aie" / "python")
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        assert factory.module("aie.iron.kernels", vendor.settings).__file__.startswith(str(vendor.folder))
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "aie"]:
            del sys.modules[name]
