"""A graph's whole image built: with programs that only note their calls, and with the vendor's where they are."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.array.build import build as built
from iron_core.array.build import has_array, kernels_of
from iron_core.declare.cases import cases
from iron_core.declare.identity import array_key
from iron_core.errors import IronError
from iron_npu.errors import KernelMismatch
from iron_npu.image.image import Image
from iron_npu.image.making import image_of
from iron_npu.machine.machine import examine
from iron_npu.settings import Settings
from iron_npu.tools import factory
from iron_npu.tools.build import build
from iron_npu.tools.program_size import program_sizes
from iron_ops_aie import GEMV, RMSNorm, SiLU
from tests.catalog import ARRAYS, named
from tests.npu import fake_aie
from tests.npu.vendor import Vendor


class Small(iron.Graph):
    """A norm, a product and an activation, on a row that a call bounds."""

    def __init__(self):
        self.w = np.ones((64, 256), bfloat16)

    def body(self, x, y, *, n: iron.Scratchpad[np.int32]):
        return SiLU(GEMV(self.w, RMSNorm(x).reshape(256))), SiLU(y[:n])


def image(dev: str, **options) -> Image:
    return image_of(Small().compile(x=(1, 256), y=(512,), dev=dev, backend="null", **options).plan)


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """The stand-ins, and an mlir-aie beside them that has every kernel."""
    made = Vendor.install(tmp_path / "tools", tmp_path / "cache")
    fake_aie.install_any(made.folder / "mlir-aie" / "python")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield made
    forget()


def test_an_elf_of_a_graph(vendor):
    """One file, with every kernel's object in it under the symbols that the text calls."""
    whole = image("npu2")
    (one,) = build(whole, vendor.settings)
    text = one.file.read_text()
    for item in whole.modules[0].objects:
        for kernel in item.kernels:
            assert f"={kernel.symbol}" in text
            assert f"aie.iron.kernels.{kernel.factory}" in text
    assert one.streams == () and one.parameters is not None and set(program_sizes(one.folder))


def test_a_chain_of_a_graph(vendor):
    """npu1's designs are one xclbin, with a stream for every sequence that a step runs."""
    whole = image("npu1")
    (chain,) = build(whole, vendor.settings)
    assert [one.kernel for one in chain.streams] == list(range(len(whole.modules))) and len(whole.modules) > 2
    for dispatch in whole.versions[0].dispatches:
        stream = chain.stream(dispatch.kernel, dispatch.sequence)
        assert stream.dynamic == bool(dispatch.words) == whole.modules[whole.binaries[0].kernels[dispatch.kernel].module].dynamic


def test_contexts_of_a_graph(vendor):
    """An xclbin for each array; a second build runs nothing."""
    contexts = image("npu2", image=iron.CONTEXTS)
    made = build(contexts, vendor.settings)
    assert len(made) == len(contexts.binaries) == len({one.file for one in made}) > 2
    calls = len(vendor.calls())
    assert build(image("npu2", image=iron.CONTEXTS), vendor.settings) == made and len(vendor.calls()) == calls


def forget():
    """As in another process: mlir-aie's Python is not imported yet."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "aie"]:
        del sys.modules[name]


def test_a_build_of_what_is_there_imports_nothing_of_mlir_aies(vendor):
    """Its import takes long; an edit of it, or other sources of kernels, are asked anew."""
    whole = image("npu2")
    first = build(whole, vendor.settings)
    forget()
    assert build(whole, vendor.settings) == first and not any(name.partition(".")[0] == "aie" for name in sys.modules)
    file = vendor.folder / "mlir-aie" / "python" / "aie" / "iron" / "kernels" / "__init__.py"
    file.write_text(file.read_text().replace("// {self._path}", "// edited {self._path}"))
    (second,) = build(whole, vendor.settings)
    assert "// edited aie.iron.kernels" in second.file.read_text() and second != first[0] and "aie.iron" in sys.modules
    forget()
    build(whole, vendor.with_(kernel_sources=vendor.folder))
    assert "aie.iron" in sys.modules


def declared(dev: str, classes=ARRAYS):
    """By symbol, every kernel of the arrays of operators' cases on a device."""
    kernels = {}
    for cls, case, _ in cases([cls for cls in classes if has_array(cls)], [dev]):
        try:
            op = cls(**case.fields).resolved(dev)
            built(op, dev)
            kernels.update(kernels_of([array_key(op)], dev))
        except IronError:  # what has no array there
            pass
    return kernels


def test_every_kernel_of_the_catalog_has_a_source(vendor):
    """Its factory's, asked with keywords that Python takes, or its own."""
    made = declared("npu2", [GEMV, RMSNorm, SiLU])
    assert len(made) > 3
    for symbol, kernel in made.items():
        if kernel.data.factory:
            given = factory.source([kernel.data], "npu2", vendor.settings, made)
            assert f"aie.iron.kernels.{kernel.data.factory} " in given.text and symbol in given.symbols


# -- with mlir-aie's Python, and all of the vendor's programs -----------------------------------------------

LACKS = [one for one in examine(Settings.read()) if one.what in ("mlir-aie", "Peano", "xclbinutil") and one.state != "ok"]
WHY = "; ".join(one.says for one in LACKS)
KINDS = {"elf": ("npu2", {}), "chain": ("npu1", {}), "contexts": ("npu2", {"image": iron.CONTEXTS})}
needs_all = pytest.mark.skipif(bool(LACKS), reason=WHY)


@pytest.mark.toolchain
@needs_all
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_mlir_aies_kernels_are_those_declared(cls, dev):
    """Arguments, roles, stack, devices, exactness and what comes out; all that differ are listed together."""
    wrong = []
    made = declared(dev, [cls])
    for kernel in made.values():
        if kernel.data.factory:
            try:
                factory.source([kernel.data], dev, Settings.read(), made)
            except KernelMismatch as error:
                wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


@pytest.mark.toolchain
@needs_all
@pytest.mark.parametrize("kind", KINDS)
def test_the_tools_build_a_graph(kind):
    """Files that are there, programs within a core's 16 KB."""
    dev, options = KINDS[kind]
    for one in build(image(dev, **options)):
        assert one.file.stat().st_size and max(program_sizes(one.folder).values()) <= 16 * 1024
        assert all(stream.path.stat().st_size for stream in one.streams)
