"""The image of a graph as data: modules, the binaries of them, and what a call of each version dispatches."""

from __future__ import annotations

import json
import pickle
import re

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.backends.protocol import Available
from iron_core.declare.operator import Operator
from iron_core.errors import UnsupportedError
from iron_core.image.array_image import array_image
from iron_core.image.packaging import CHAIN_DESIGNS
from iron_npu.backend import NpuBackend
from iron_npu.image.image import Image, freeze, thaw
from iron_npu.image.making import image_of
from iron_npu.mlir import address_map, chain
from iron_npu.mlir.chain import FIRST_ID, LONGEST, kernel_name
from iron_npu.mlir.graph import groups, print_graph, shared_words, version_names
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, SiLU
from tests.npu.structural import check

N = 4096


class Sums(iron.Graph):
    """Two arrays, a weight, and a row of a state at a position; a version with `y` and one without."""

    def __init__(self):
        self.w, self.rows = iron.weight(np.ones((64, 64), bfloat16)), iron.state((8, N))

    def body(self, x, y=None, *, n: iron.Scratchpad[np.int32], at: iron.Scratchpad[np.int32]):
        own = None if y is None else ElementwiseAdd(SiLU(y), y)
        z = SiLU(ElementwiseAdd(x[:n], x[:n]))
        Copy(x, self.rows[at])
        return z if own is None else own


X, XY = dict(x=(N,)), dict(x=(N,), y=(N,))
WAYS = {
    "elf": ("npu2", {}),
    "xclbin": ("npu1", {}),
    "each_step": ("npu2", dict(boundaries=iron.each_step)),
    "contexts": ("npu2", dict(image=iron.CONTEXTS)),
}


def planned(graph, *shapes, dev="npu2", **way):
    first, *more = shapes
    compiled = graph.compile(dev=dev, backend="null", **way, **first)
    for one in more:
        compiled.add(**one)
    return compiled.plan


def imaged(way: str, *shapes) -> Image:
    dev, given = WAYS[way]
    return image_of(planned(Sums(), *(shapes or (X, XY)), dev=dev, **given))


@pytest.fixture(scope="module", params=WAYS)
def image(request) -> Image:
    return imaged(request.param)


def test_its_texts_hold_together(image):
    """Every module's: devices, names, words and lengths agree; what is linked is listed."""
    for module in image.modules:
        assert check(module.text) == ()
        assert set(re.findall(r'link_with = "([^"]+)"', module.text)) == {one.file for one in module.objects}


def test_it_is_data(image):
    """It comes back from bytes as it was, without an operator, and its record is JSON."""
    content = freeze(image)
    again = thaw(content)
    assert again is not None and again.record() == image.record() == json.loads(json.dumps(image.record()))
    assert [m.text for m in again.modules] == [m.text for m in image.modules]
    assert not [name for name in _classes(content) if isinstance(name, type) and issubclass(name, Operator)]
    assert thaw(b"nonsense") is None and thaw(pickle.dumps(image.modules)) is None


def _classes(content: bytes) -> list[object]:
    found: list[object] = []

    class Noting(pickle.Unpickler):
        def find_class(self, module, name):
            found.append(super().find_class(module, name))
            return found[-1]

    import io

    Noting(io.BytesIO(content)).load()
    assert found
    return found


def test_every_dispatch_names_a_sequence_that_is_there(image):
    """Its buffers are as many, and as large, as the sequence's tensors, and lie in the version's regions; its scalars follow."""
    for version in image.versions:
        for one in version.dispatches:
            kernel = image.binaries[one.binary].kernels[one.kernel]
            module = image.modules[kernel.module]
            device, _, sequence = kernel.name.partition(":") if image.kind == "elf" else (module.device, "", one.sequence)
            inside = module.text.partition(f"@{device} {{")[2]
            (taken,) = re.findall(rf"aie\.runtime_sequence @{sequence}\((.*)\)", inside)[:1]
            kinds = re.findall(r"memref<(\d+)x(\w+)>", taken)
            width = {"i8": 1, "bf16": 2, "i32": 4}
            assert [int(n) * width[kind] for n, kind in kinds] == [buffer.nbytes for buffer in one.buffers]
            assert taken.count(" : i32") == len(one.words)
            assert all(word < len(version.words) for word in one.words)
            for buffer in one.buffers:
                assert buffer.offset % 4 == 0 and buffer.offset + buffer.nbytes <= version.regions[buffer.region][1]


def test_residents_are_at_the_same_bytes_in_every_version(image):
    for name in ("residents0",):
        places = [
            [(version.regions[place.argument], place.offset) for key, place in version.addresses.addresses if key[0] == "resident"]
            for version in image.versions
        ]
        assert places[0] == places[1] and all(region[0] == name for region, _ in places[0])


# -- a full ELF ------------------------------------------------------------------------------------------


def test_versions_of_a_full_elf_are_one_module():
    """A main device each, named for what it takes; arrays once, and an equal number of an equal form one word."""
    image = imaged("elf")
    (module,), (binary,) = image.modules, image.binaries
    assert [kernel.name for kernel in binary.kernels] == ["main_x_4096:sequence", "main_x_4096_y_4096:sequence"]
    devices = re.findall(r"aie\.device\(npu2\) @(\w+)", module.text)
    assert len(devices) == len(set(devices)) and devices[-2:] == ["main_x_4096", "main_x_4096_y_4096"]
    assert len([name for name in devices if name.startswith("ElementwiseAdd_")]) == 1
    one, two = image.versions
    assert one.words == two.words and module.text.count("aiex.scratchpad_parameter") == len(one.words)
    moved = next(n for n, word in enumerate(one.words) if word.kind == "offset")
    assert one.table[moved] == two.table[moved] and any(one.table[moved])


def test_a_word_that_a_version_does_not_have_is_a_row_of_zeros():
    class Either(iron.Graph):
        def body(self, x, y=None, *, n: iron.Scratchpad[np.int32], m: iron.Scratchpad[np.int32]):
            return SiLU(x[:n]) if y is None else ElementwiseAdd(x[:m], y[:m])

    image = image_of(planned(Either(), X, XY))
    (one, two), width = image.versions, 9
    assert [word.form.value for word in one.words] == ["n", "n", "m", "m"]
    assert [any(row) for row in one.table] == [True, True, False, False]
    assert [any(row) for row in two.table] == [False, False, True, True] and all(len(row) == width for row in two.table)


class Many(iron.Graph):
    """A position for each row that a version writes: words of its own."""

    def __init__(self, count):
        self.rows = [iron.state((8, 64)) for _ in range(count)]
        self.count = count

    def body(self, x, y=None, *, at: iron.Scratchpad[np.int32]):
        first = 0 if y is None else self.count // 2
        for n, rows in enumerate(self.rows[first : first + self.count // 2]):
            Copy(x, rows[at * (first + n + 1)])
        return SiLU(x)


def test_versions_with_too_many_words_together_are_modules_of_their_own():
    """A scratchpad has 32 for a module: of 20 and 20 each is one, with the same residents; of 15 and 15 both are one."""
    for count, modules in ((40, 2), (30, 1)):
        plan = planned(Many(count), dict(x=(64,)), dict(x=(64,), y=(64,)))
        images = [array_image(plan, version.signature) for version in plan.versions]
        assert [len(one.parameters) for one in images] == [count // 2] * 2
        image = image_of(plan)
        assert len(image.modules) == len(image.binaries) == modules == len(groups(plan, images))
        assert [one.dispatches[0].binary for one in image.versions] == list(range(2))[:modules] * (2 // modules)
        assert all(check(module.text) == () for module in image.modules)
    plan = planned(Many(40), dict(x=(64,)), dict(x=(64,), y=(64,)))
    with pytest.raises(UnsupportedError, match=r"Many: 40 per-call words, and a full ELF's scratchpad has 32"):
        print_graph(plan, [array_image(plan, version.signature) for version in plan.versions])


def test_one_version_with_too_many_words_is_refused():
    plan = planned(Many(80), dict(x=(64,)))
    with pytest.raises(UnsupportedError, match="Many: 40 per-call words, and a full ELF's scratchpad has 32"):
        image_of(plan)


def test_equal_symbols_of_other_forms_are_told_apart():
    """Two versions whose words would be called alike keep two."""
    plan = planned(Sums(), X, XY)
    one, two = (array_image(plan, version.signature) for version in plan.versions)
    other = attrs.evolve(two.parameters[0], form=two.parameters[0].form * 3)
    words, places = shared_words([one, attrs.evolve(two, parameters=(other, *two.parameters[1:]))])
    symbols = [word.symbol for word in words]
    assert len(set(symbols)) == len(symbols) == len(one.parameters) + 1
    assert places[1][0] == len(one.parameters) and symbols[-1] == f"{other.symbol}_v2"


def test_names_of_versions_are_symbols():
    names = version_names([(), (("ids", (64,), "int32"),), (("x", (2, 3), "bfloat16"), ("n", (-5,), "number"))])
    assert names == ["main", "main_ids_64_int32", "main_x_2x3_nm5"]
    long = [(("x" * 60, (n,), "q4_0 (a)"),) for n in (1, 2)]
    names = version_names(long)
    assert len(set(names)) == 2 and all(re.fullmatch(r"\w{1,48}", name) for name in names)


def test_more_buffers_than_a_kernel_is_given_are_refused(monkeypatch):
    """Of a full ELF its regions count, of a dispatch its step's tensors; both say what to do."""
    monkeypatch.setattr(address_map, "ARGUMENTS", 2)
    with pytest.raises(UnsupportedError, match=r"Sums \(input, output, bank0, residents0\): 4 buffers, .* at most 2\. Legal: fewer banks"):
        imaged("elf")
    with pytest.raises(UnsupportedError, match=r"step elementwiseadd0: 3 buffers, .* at most 2\. Legal: an operator with fewer tensors"):
        imaged("xclbin")


def test_a_buffer_between_two_words_is_refused_by_its_step():
    class Odd(iron.Graph):
        def __init__(self):
            self.row = iron.state((195,))

        def body(self):
            return SiLU(self.row[65:129])

    for dev in ("npu1", "npu2"):
        with pytest.raises(UnsupportedError, match=r"step silu0: its x: a buffer starts at byte 130 of residents0; .* multiples of 4"):
            image_of(planned(Odd(), {}, dev=dev))


# -- chains ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["xclbin", "each_step"])
def test_a_chain_is_a_kernel_for_every_design(way):
    """Numbered and named in the order they are linked; equal designs of steps and of versions are one."""
    image = imaged(way)
    (binary,) = image.binaries
    assert [kernel.module for kernel in binary.kernels] == list(range(len(image.modules)))
    assert [kernel.id for kernel in binary.kernels] == [FIRST_ID + n for n in range(len(image.modules))]
    assert len({kernel.name for kernel in binary.kernels}) == len(image.modules) < sum(len(v.dispatches) for v in image.versions)
    assert all(len(f"{kernel.name}:{kernel.instance}") <= LONGEST for kernel in binary.kernels)
    one, two = image.versions
    kernels = [{d.step: d.kernel for d in version.dispatches} for version in (one, two)]
    assert kernels[0]["elementwiseadd0"] == kernels[1]["elementwiseadd1"] != kernels[1]["elementwiseadd0"]
    assert [module.dynamic for module in image.modules] == ["%" in _scalars(module.text) for module in image.modules]


def _scalars(text: str) -> str:
    (taken,) = re.findall(r"aie\.runtime_sequence @\w+\((.*)\)", text)
    return "".join(part for part in taken.split(", ") if not part.partition(" : ")[2].startswith("memref"))


def test_names_of_kernels_follow_from_the_designs_alone():
    """The same in a graph that comes to them in another order; long ones end as short ones do."""
    first, second = (imaged("xclbin", *shapes).binaries[0].kernels for shapes in ((X, XY), (XY, X)))
    assert {kernel.name for kernel in first} == {kernel.name for kernel in second} and first != second
    long, other = (kernel_name("A" * 70, text) for text in "ab")
    assert 2 * len(long) + 1 <= LONGEST and long != other and long.startswith("AAAA")


def test_a_chain_that_is_full_begins_the_next(monkeypatch):
    """A context takes so many kernels; each xclbin numbers its own from the first id on."""
    assert CHAIN_DESIGNS == 32
    monkeypatch.setattr(chain, "CHAIN_DESIGNS", 2)
    image = imaged("xclbin")
    assert [len(binary.kernels) for binary in image.binaries] == [2, 2, 1]
    assert [[k.id - FIRST_ID for k in binary.kernels] for binary in image.binaries] == [[0, 1], [0, 1], [0]]
    for version in image.versions:
        for one in version.dispatches:
            module = image.modules[image.binaries[one.binary].kernels[one.kernel].module]
            assert re.search(r"aie\.runtime_sequence", module.text) and len(one.buffers) == module.text.partition("sequence(")[2].partition(
                ")"
            )[0].count("memref")


def test_several_steps_in_one_xclbin_are_refused():
    with pytest.raises(UnsupportedError, match="several steps fused inside one have no proven construction"):
        Sums().compile(dev="npu2", backend="null", image=iron.XCLBIN, **X)


def test_a_dispatch_time_number_is_a_version_of_its_own():
    """Its number is in the text, so no word carries it; designs that do not follow it are shared."""

    class Cut(iron.Graph):
        def body(self, x, *, n: iron.DispatchTime[np.int32]):
            return SiLU(ElementwiseAdd(x, x)[:n])

    image = image_of(planned(Cut(), dict(x=(N,), n=1024), dict(x=(N,), n=2048)))
    assert image.kind == "xclbin" and [version.name for version in image.versions] == ["main_x_4096_n1024", "main_x_4096_n2048"]
    assert all(version.words == () for version in image.versions)
    first, second = ([one.kernel for one in version.dispatches] for version in image.versions)
    assert first[0] == second[0] and first[1] != second[1]


def test_tensors_that_the_firmware_does_not_move_are_told():
    """Of an xclbin's run it moves the first five into the NPU's window; the stream does the others."""
    image = imaged("xclbin")
    one = image.versions[0].dispatches[0]
    assert one.beyond == () and attrs.evolve(one, buffers=one.buffers * 3).beyond == (5, 6, 7, 8)


def test_ids_of_a_gather_become_words_before_their_dispatch():
    """The host makes them of the ids, on a chain before the step; of a full ELF they are a region."""

    class Lookup(iron.Graph):
        def __init__(self):
            self.table = iron.state((64, 128))

        def body(self, ids):
            return Copy(self.table[ids])

    shapes = dict(ids=((8,), np.int32))
    for dev in ("npu1", "npu2"):
        image = image_of(planned(Lookup(), shapes, dev=dev))
        (version,) = image.versions
        control = [control for one in version.dispatches for _, control in one.control] or list(version.tensors.controls)
        assert [(one.ids.space, one.table.space) for one in control] == [("input", "resident")]
        assert ("control" in [name for name, _ in version.regions]) == (dev == "npu2")


# -- contexts --------------------------------------------------------------------------------------------


def test_contexts_of_a_graph_are_an_xclbin_for_every_array():
    """Whatever versions it is of; a version's steps are sequences of them."""
    image = imaged("contexts")
    alone = imaged("contexts", X)
    assert {binary.name for binary in alone.binaries} <= {binary.name for binary in image.binaries}
    assert all(len(binary.kernels) == 1 for binary in image.binaries)
    for module in image.modules:
        assert list(module.sequences) == re.findall(r"aie\.runtime_sequence @(\w+)", module.text)
        assert re.findall(r"aie\.device\(npu2\) @(\w+)", module.text) == [module.device] == [module.name]


def test_products_keep_their_weights_where_the_plan_has_them():
    class Product(iron.Graph):
        def __init__(self):
            self.w, self.v = (iron.weight(np.ones((64, 64), bfloat16)) for _ in range(2))

        def body(self, x):
            return GEMV(self.v, GEMV(self.w, x))

    image = image_of(planned(Product(), dict(x=(64,)), dev="npu1"))
    (version,) = image.versions
    assert [one.buffers[0].offset for one in version.dispatches] == [0, 64 * 64 * 2]
    assert {version.regions[one.buffers[0].region][0] for one in version.dispatches} == {"residents0"}


def test_artifacts_of_a_version_have_the_image_too(tmp_path, monkeypatch):
    """Of the backend that makes it; `record="disk"` writes all of it."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(NpuBackend, "probe", lambda self: Available("compiles"))
    run = Sums().compile(dev="npu2", backend="npu", record="disk", **X)
    (version,) = run.versions.values()
    found = version.artifacts
    assert found["kind"] == "elf" and found["image"] == version.image.image.record()
    (file,) = tmp_path.rglob("record.json")
    assert json.loads(file.read_text()) == json.loads(json.dumps(found))
    assert "image" not in next(iter(Sums().compile(dev="npu2", backend="null", **X).versions.values())).artifacts
