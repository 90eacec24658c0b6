"""Kernels' objects: Peano's command, symbols, the headers that count, and what the cache does with them."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import numpy as np
import pytest

from iron_core.array import Kernel, KernelContract
from iron_core.array.build import build as built
from iron_core.declare.field import Param
from iron_core.declare.objects import ObjectType
from iron_core.declare.operand import In, Out
from iron_npu.errors import ToolError
from iron_npu.mlir.kernels import KernelObject
from iron_npu.mlir.printer import print_design
from iron_npu.tools.objects import FLAGS, Objects, Recipe, Unit, compile_line, included, recipe
from iron_npu.tools.programs import AIECC, CLANG, LINKER, OBJCOPY, found
from iron_npu.tools.run import Runner
from iron_ops_aie import RMSNorm
from tests.npu import fake_aie
from tests.npu.vendor import Vendor

LINE = ObjectType.of(64, "int32")


@pytest.fixture
def vendor(tmp_path):
    return Vendor.install(tmp_path / "tools", tmp_path / "cache")


@pytest.fixture
def make(vendor):
    """make(KernelObject, dev=): what it is known by, and its text."""

    def one(wanted: KernelObject, dev: str = "npu2") -> tuple[str, str]:
        objects = Objects(dev, vendor.settings, found((AIECC, CLANG, OBJCOPY, LINKER), vendor.settings))
        key, path = objects.made(recipe(wanted, dev, vendor.settings), Runner(wanted.file, vendor.settings))
        return key, path.read_text()

    return one


@pytest.fixture
def aie(vendor, monkeypatch):
    """mlir-aie's Python beside its programs."""
    folder = fake_aie.install(vendor.folder / "mlir-aie" / "python")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "aie"]:
        del sys.modules[name]


def inline(source: str = 'extern "C" void KERNEL(int *a, int *b) {}', defines=None) -> KernelObject:
    kernel = Kernel.inline("copy", source, (LINE, LINE), KernelContract(roles=(In, Out), reference=lambda x: x), defines)
    return KernelObject(f"{kernel.data.symbol}.o", (kernel.data,))


def hosted() -> KernelObject:
    contract = KernelContract(roles=(In, Out, Param), reference=lambda x, n: 2 * x)
    one = Kernel.factory("eltwise.double_sized", (LINE, LINE, np.int32), contract, tile_size=64)
    other = Kernel.factory("eltwise.double_sized", (LINE, LINE, np.int32), contract, symbol="halve", tile_size=64)
    return KernelObject("double_1234.o", (one.data, other.data), ('extern "C" void double_at_64(uint32_t *a0, int32_t o0) {}',))


def test_the_command_is_peanos():
    """As mlir-aie compiles its own: target, language, and that headers are noted."""
    (unit,) = recipe(inline(defines=dict(ROWS=4)), "npu2", None).units
    line = compile_line("/p/bin/clang++", "AIE2P", unit, Path("k.cc"), Path("k.o"), Path("k.d"), ("/aie/include",))
    assert line[:2] == ["/p/bin/clang++", "--target=aie2p-none-unknown-elf"]
    assert {"-O2", "-std=c++20", "-DNDEBUG", "-D__AIE_API_AIE_ADF_HPP__"} <= {*FLAGS} <= {*line}
    assert line[-8:] == ["-I", "/aie/include", "-MD", "-MF", "k.d", "k.cc", "-o", "k.o"]
    assert "-DROWS=4" in line and any(word.startswith("-DKERNEL=copy_") for word in line)


def test_an_inline_kernel_is_its_source_under_its_symbol(vendor, make):
    wanted = inline("void f(int *);")
    _, text = make(wanted)
    symbol = wanted.kernels[0].symbol
    assert f"-DKERNEL={symbol} void f(int *);" in text and f"--keep-global-symbol={symbol}" in text
    (call,) = vendor.calls("clang++")
    assert "--target=aie2p-none-unknown-elf" in call and "--redefine-sym" not in "".join(map(str, vendor.calls("llvm-objcopy")))


def test_a_kernel_of_mlir_aies_gets_our_symbols(vendor, make, aie):
    """Its functions are renamed, joined with the adapters beside them, and nothing else of it is seen from outside."""
    wanted = hosted()
    _, text = make(wanted)
    renames = {word for call in vendor.calls("llvm-objcopy") for word in call if word.startswith("--redefine-sym")}
    one, other = (kernel.symbol for kernel in wanted.kernels)
    assert renames == {f"--redefine-sym=double_int32={one}", f"--redefine-sym=halve={other}"}
    kept = {word.partition("=")[2] for word in text.split() if word.startswith("--keep-global-symbol")}
    assert kept == {one, other, "double_at_64"}
    assert "double of aie2p" in text and "// both" in text and "double_at_64(uint32_t" in text
    first, second = vendor.calls("clang++")
    assert "-DTILE=64" in first and "-DTILE=64" not in second


def test_an_object_is_made_once(vendor, make):
    first = make(inline())
    calls = len(vendor.calls())
    assert make(inline()) == first and len(vendor.calls()) == calls
    assert make(inline(), "npu1") != first
    assert make(inline(defines=dict(N=1)))[0] != first[0]


@pytest.mark.parametrize("program", ["clang++", "llvm-objcopy", "ld.lld"])
def test_another_program_is_another_object(vendor, make, program):
    first = make(inline())
    vendor.edited(program)
    assert make(inline())[0] != first[0]


UNIT = Unit("// text\n", ("/a",), ("-DA",), (("old", "new"),))
OTHERS = {
    "text": dict(units=(attrs.evolve(UNIT, text="// other\n"),)),
    "folders": dict(units=(attrs.evolve(UNIT, include=("/b",)),)),
    "flags": dict(units=(attrs.evolve(UNIT, flags=("-DB",)),)),
    "names": dict(units=(attrs.evolve(UNIT, renamed=(("old", "newer"),)),)),
    "units": dict(units=(UNIT, UNIT)),
    "exports": dict(exported=("new", "more")),
}


@pytest.mark.parametrize("part", OTHERS)
def test_another_part_of_a_recipe_is_another_object(vendor, part):
    """Whatever the compiler or the linker is told."""
    objects = Objects("npu2", vendor.settings, found((AIECC, CLANG, OBJCOPY, LINKER), vendor.settings))
    one = Recipe("k.o", (UNIT,), ("new",))
    first, _ = objects.made(one, Runner("k", vendor.settings))
    assert objects.made(attrs.evolve(one, **OTHERS[part]), Runner("k", vendor.settings))[0] != first


@pytest.mark.parametrize("header", ["kernels/include/both.h", "kernels/aie2p/double.cc"])
def test_a_header_that_was_included_counts(vendor, make, aie, header):
    """Its content, that of the source itself, and whether it is there; not its times."""
    file = aie / "aie" / "iron" / header
    key, text = make(hosted())
    calls = len(vendor.calls())
    file.touch()
    assert make(hosted()) == (key, text) and len(vendor.calls()) == calls
    whole = file.read_text()
    file.write_text(whole + "// edited\n")
    other = make(hosted())
    assert other[0] != key and "// edited" in other[1]
    calls = len(vendor.calls())
    file.write_text(whole)
    assert make(hosted()) == (key, text)
    assert len(vendor.calls()) == calls


def test_a_header_that_was_not_included_does_not(vendor, make, aie):
    first = make(hosted())
    (aie / "aie" / "iron" / "kernels" / "include" / "other.h").write_text("// nobody reads it\n")
    assert make(hosted()) == first


def test_a_header_that_is_gone_is_looked_for_anew(vendor, make, aie):
    key, _ = make(hosted())
    (aie / "aie" / "iron" / "kernels" / "include" / "both.h").unlink()
    assert make(hosted())[0] != key


def test_headers_of_mlir_aie_are_found_beside_its_programs(vendor, make):
    """Once they are there, what was made without them is made anew."""
    source = '#include "aie_api/aie.hpp"\n'
    without, _ = make(inline(source))
    include = vendor.folder / "mlir-aie" / "include"
    (include / "aie_api").mkdir(parents=True)
    (include / "aie_api" / "aie.hpp").write_text("// the AIE API\n")
    key, text = make(inline(source))
    assert "// the AIE API" in text and key != without


def test_a_kernel_that_does_not_compile_names_itself(vendor, make):
    """The compiler's first error, and the folder with the source."""
    wanted = inline("#error no such intrinsic\n")
    with pytest.raises(ToolError) as caught:
        make(wanted)
    error = caught.value
    assert str(error).startswith(f"clang++ on {wanted.file}: ") and "error: no such intrinsic" in str(error)
    assert (error.folder / "unit0.cc").read_text() == "#error no such intrinsic\n" and (error.folder / "clang++.log").is_file()


def test_a_compiler_that_leaves_nothing_is_an_error(vendor, make):
    vendor.mode("clang++", "nothing")
    with pytest.raises(ToolError, match=r"clang\+\+ on copy_\w+\.o: it made no object and reported no error"):
        make(inline())


def test_a_damaged_object_is_made_again(vendor, make, tmp_path):
    key, text = make(inline())
    (path,) = (tmp_path / "cache" / "iron" / "npu").glob("*/kernel.o")
    path.chmod(0o644)
    path.write_text("?")
    with pytest.warns(UserWarning, match=r"kernel.o has another size.*building it again"):
        assert make(inline()) == (key, text)


def test_notes_of_headers_are_read_as_make_has_them():
    noted = "k.o: k.cc /a/b.h \\\n  /with\\ space/c.h \\\n  /dollar$$/d.h\n"
    assert included(noted) == ["k.cc", "/a/b.h", "/with space/c.h", "/dollar$/d.h"]
    assert included("k.o:\n") == []


def test_what_an_operator_rounds_by_is_an_object_of_ours(vendor):
    """With nothing of mlir-aie's Python."""
    printed = print_design(built(RMSNorm(rows=4, cols=256).resolved("npu2"), "npu2").design)
    (own,) = [one for one in printed.objects if not one.kernels]
    made = recipe(own, "npu2", vendor.settings)
    assert made.exported == ("iron_set_rounding_conv_even",) and "aie_api/aie.hpp" in made.units[0].text


def test_only_an_aie_architecture_has_a_target():
    with pytest.raises(KeyError):
        compile_line("clang++", "x86", recipe(inline(), "npu2", None).units[0], Path("a"), Path("b"), Path("c"), ())
