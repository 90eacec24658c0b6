"""Building printed modules with the vendor's programs, which here only note how they were called."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import warnings
from pathlib import Path

import attrs
import pytest

from iron_core.cache.store import CacheWarning
from iron_core.errors import CacheHomeError, CallError
from iron_npu.errors import MissingTool, ToolError
from iron_npu.image.image import Entry, Module
from iron_npu.mlir.kernels import KernelObject
from iron_npu.mlir.printer import print_design
from iron_npu.tools.build import build, needed
from iron_npu.tools.program_size import program_sizes
from iron_npu.tools.request import Request
from tests.npu.vendor import Vendor

TEXT = "module {{\n  aie.device({dev}) @main {{\n{declared}    aie.runtime_sequence @sequence() {{\n    }}\n  }}\n}}\n"


def module(name: str = "Small", dev: str = "npu2", **more) -> Module:
    return Module(name, TEXT.format(dev=dev, declared=f"    // {name}\n"), (), "main", ("sequence",), **more)


def elf(made: Module, dev: str = "npu2") -> Request:
    return Request(made.name, dev, "elf", ((made, Entry(0, "main:sequence")),))


def xclbin(*made: Module, dev: str = "npu1") -> Request:
    return Request(made[0].name, dev, "xclbin", tuple((one, Entry(n, one.name, 0x901 + n, f"{one.name}i")) for n, one in enumerate(made)))


@pytest.fixture
def vendor(tmp_path) -> Vendor:
    return Vendor.install(tmp_path / "tools", tmp_path / "cache")


def printed(arrays, dev: str = "npu2") -> Module:
    made = print_design(arrays.calls(dev))
    return Module("Small", made.text, made.objects, "main", ("sequence",), made.dynamic)


def test_a_full_elf_has_its_parameters_and_no_stream(vendor, arrays):
    (built,) = build([elf(printed(arrays))], vendor.settings)
    assert built.file.read_text().startswith("elf of module") and built.streams == ()
    assert built.parameters is not None and built.parameters.read_text() == "0\n"
    (call,) = vendor.calls("aiecc")
    assert {"--get-full-elf", "--get-scratchpad-parameters", "--expand-load-pdis", "--dynamic-objFifos"} <= {*call}
    assert "--no-xchesscc" in call and not any("xclbin" in word for word in call)


def test_an_xclbin_has_a_stream_for_each_sequence(vendor):
    text = module().text.replace("  }\n}\n", "    aie.runtime_sequence @second() {\n    }\n  }\n}\n")
    (built,) = build([xclbin(Module("Two", text, (), "main", ("sequence", "second")))], vendor.settings)
    assert [one.path.read_text() for one in built.streams] == ["stream of sequence", "stream of second"]
    assert built.stream(0, "second") == built.streams[1]
    with pytest.raises(CallError, match=r"no stream third of kernel 0 was built; there are sequence of kernel 0, second of kernel 0"):
        built.stream(0, "third")
    (call,) = vendor.calls("aiecc")
    assert f"--xclbinutil-path={vendor.folder}/xrt/bin/xclbinutil" in call and "--get-npu-insts" in call


def test_a_chain_is_one_xclbin_linked_design_by_design(vendor):
    (built,) = build([xclbin(*(module(name) for name in "abc"))], vendor.settings)
    assert built.file.read_text().split() == ["a", "b", "c"]
    assert [(one.kernel, one.sequence) for one in built.streams] == [(n, "sequence") for n in range(3)]
    calls = vendor.calls("aiecc")
    assert [next(w for w in call if "kernel-id" in w) for call in calls] == [f"--xclbin-kernel-id={0x901 + n:#x}" for n in range(3)]
    assert [any("xclbin-input" in word for word in call) for call in calls] == [False, True, True]
    assert sorted(program_sizes(built.folder)) == ["0_main_core_0_2", "1_main_core_0_2", "2_main_core_0_2"]


def test_an_elf_is_of_one_module():
    with pytest.raises(CallError, match=r"Two: 2 modules for one elf; legal: 1\."):
        Request("Two", "npu2", "elf", xclbin(module(), module()).links)
    with pytest.raises(CallError, match=r"None: 0 modules for one xclbin; legal: at least 1\."):
        Request("None", "npu2", "xclbin", ())
    with pytest.raises(CallError, match=r"Odd: format 'pdi'; legal: elf, xclbin\."):
        Request("Odd", "npu2", "pdi", xclbin(module()).links)


def test_sequences_with_scalars_become_cpp(vendor, arrays):
    made = printed(arrays, "npu1")
    assert made.dynamic
    (built,) = build([xclbin(made, dev="npu1")], vendor.settings)
    (stream,) = built.streams
    assert stream.dynamic and stream.path.read_text().startswith("// builds streams of module") and stream.path.suffix == ".h"
    (call,) = vendor.calls("aiecc")
    assert "--get-input-with-addresses" in call and "--get-npu-insts" not in call
    (lowered,) = vendor.calls("aie-opt")
    assert "--aie-lower-dynamic-bd-pool" in lowered and lowered[-3].endswith("input_with_addresses.mlir")


def test_objects_lie_where_aiecc_looks_for_them(vendor, arrays):
    made = printed(arrays)
    (built,) = build([elf(made)], vendor.settings)
    symbol = made.objects[0].kernels[0].symbol
    assert f"-DKERNEL={symbol} " in built.file.read_text()


def test_what_was_built_is_not_built_again(vendor, arrays):
    asked = [elf(printed(arrays)), xclbin(module(), dev="npu2")]
    first = build(asked, vendor.settings)
    calls = len(vendor.calls())
    assert build(asked, vendor.settings) == first and len(vendor.calls()) == calls
    assert build([asked[1], asked[1]], vendor.settings) == (first[1], first[1]) and len(vendor.calls()) == calls


@pytest.mark.parametrize("part", ["text", "device", "sort", "aiecc", "clang++", "ld.lld", "dynamic"])
def test_another_part_is_another_image(vendor, arrays, part):
    """Text, target and every program that runs."""
    made = printed(arrays)
    (first,) = build([xclbin(made, dev="npu2")], vendor.settings)
    asked = xclbin(made, dev="npu2")
    if part == "text":
        asked = xclbin(attrs.evolve(made, text=made.text + "\n"), dev="npu2")
    elif part == "device":
        asked = xclbin(made, dev="npu2_4col")
    elif part == "sort":
        asked = elf(made)
    elif part == "dynamic":
        asked = xclbin(attrs.evolve(made, dynamic=True), dev="npu2")
    else:
        vendor.edited(part)
    (second,) = build([asked], vendor.settings)
    assert second.folder != first.folder


def header(vendor: Vendor) -> Path:
    """A header of mlir-aie's, by a name that a kernel may include."""
    path = vendor.folder / "mlir-aie" / "include" / "aie_api" / "aie.hpp"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


PARTS = {
    "a kernel's name": lambda asked: attrs.evolve(asked, links=((asked.modules[0], Entry(0, "other", 0x901, "i")),)),
    "a device's name": lambda asked: attrs.evolve(asked, links=((attrs.evolve(asked.modules[0], device="other"), asked.links[0][1]),)),
    "a sequence": lambda asked: attrs.evolve(
        asked, links=((attrs.evolve(asked.modules[0], sequences=("sequence", "sequence")), asked.links[0][1]),)
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_another_name_is_another_image(vendor, part):
    asked = xclbin(module())
    (first,) = build([asked], vendor.settings)
    (second,) = build([PARTS[part](asked)], vendor.settings)
    assert second.folder != first.folder


@pytest.mark.parametrize("program", ["peano/bin/llc", "peano/bin/opt", "mlir-aie/bin/bootgen"])
def test_programs_that_aiecc_runs_count(vendor, program):
    """Whether they are there, and their bytes."""
    seen = [build([xclbin(module())], vendor.settings)[0].folder]
    for text in ("#!/bin/sh\n", "#!/bin/sh\n# another\n"):
        path = vendor.folder / program
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        seen.append(build([xclbin(module())], vendor.settings)[0].folder)
    assert len(set(seen)) == 3


def test_an_image_follows_the_headers_of_its_kernels(vendor):
    """Its text is the same."""
    functions = '#include "aie_api/aie.hpp"', 'extern "C" void iron_set_rounding_floor() {}'
    rounding = KernelObject("iron_set_rounding_floor.o", (), functions)
    text = module().text.replace("// Small", 'func.func private @f() attributes {link_with = "iron_set_rounding_floor.o"}')
    asked = xclbin(Module("Small", text, (rounding,), "main", ("sequence",)))
    header(vendor).write_text("// one\n")
    (first,) = build([asked], vendor.settings)
    header(vendor).write_text("// two\n")
    (second,) = build([asked], vendor.settings)
    assert second.folder != first.folder and "// two" in second.file.read_text() and "// two" not in first.file.read_text()


def test_equal_requests_are_built_once_and_others_side_by_side(vendor):
    vendor.mode("aiecc", "sleep 0.3")
    one, other = xclbin(module("a")), xclbin(module("b"))
    built = build([one, one, other], attrs.evolve(vendor.settings, jobs=2))
    assert built[0] == built[1] != built[2] and len(vendor.calls("aiecc")) == 2
    assert all("-j" in "".join(call) for call in vendor.calls("aiecc"))


def test_threads_of_aiecc_are_the_environments_or_shared(vendor):
    build([xclbin(module())], attrs.evolve(vendor.settings, threads=7))
    assert "-j7" in vendor.calls("aiecc")[0]
    build([xclbin(module(name)) for name in "abcdefgh"], attrs.evolve(vendor.settings, jobs=64))
    assert f"-j{max(1, (os.cpu_count() or 1) // 8)}" in vendor.calls("aiecc")[-1]


def test_a_failure_is_one_line_and_keeps_the_folder(vendor):
    """The tool, the design, its first error, and where the text, the log and the objects are."""
    vendor.mode("aiecc", "fail: design.mlir:3:5: error: 'aie.tile' op no such tile\nnote: and more")
    with pytest.raises(ToolError) as caught:
        build([xclbin(module("GEMV_12ab"))], vendor.settings)
    error = caught.value
    kept = r"Kept, with its log: \S+/GEMV_12ab-[0-9a-f]{8}"
    assert re.fullmatch(rf"aiecc on GEMV_12ab: .*error: 'aie.tile' op no such tile\. {kept}\.", str(error))
    assert error.folder is not None and (error.folder / "0" / "design.mlir").read_text() == module("GEMV_12ab").text
    log = (error.folder / "0" / "aiecc.log").read_text()
    assert log.startswith("$ ") and "--get-xclbin" in log and "note: and more" in log
    vendor.mode("aiecc")
    assert build([xclbin(module("GEMV_12ab"))], vendor.settings)


def test_the_last_failures_are_kept(vendor, tmp_path):
    vendor.mode("aiecc", "fail: error: no")
    for number in range(10):
        with pytest.raises(ToolError):
            build([xclbin(module(f"n{number}"))], vendor.settings)
    kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "cache" / "iron" / "failed").iterdir())
    assert kept == [f"n{number}" for number in range(2, 10)]


def test_a_folder_that_is_named_keeps_every_build(vendor, tmp_path):
    build([xclbin(module())], attrs.evolve(vendor.settings, keep=tmp_path / "kept"))
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name.startswith("Small-") and (kept / "0" / "aiecc.log").is_file()


def test_a_program_has_its_time(vendor):
    """One that takes longer is ended, and the error says which variable allows more."""
    vendor.mode("aiecc", "sleep 60")
    with pytest.raises(ToolError, match=r"aiecc on Small: it did not end in 0\.2 s, which IRON_NPU_SECONDS allows\. Kept"):
        build([xclbin(module())], attrs.evolve(vendor.settings, seconds=0.2))


def test_a_program_that_is_killed_is_said_so(vendor):
    vendor.mode("aiecc", "killed")
    with pytest.raises(ToolError, match=r"aiecc on Small: signal 9 ended it"):
        build([xclbin(module())], vendor.settings)


@pytest.mark.parametrize(("kind", "name"), [(xclbin, "insts_main_sequence.bin"), (elf, "design.elf")])
def test_a_success_that_left_nothing_is_none(vendor, kind, name):
    vendor.mode("aiecc", "nothing")
    with pytest.raises(ToolError, match=rf"aiecc on Small: it made no {name} and reported no error"):
        build([kind(module())], vendor.settings)


def test_a_program_that_does_not_start_is_an_error_of_its_own(vendor):
    path = vendor.folder / "mlir-aie" / "bin" / "aiecc"
    path.write_text("#!/no/such/interpreter\n")
    with pytest.raises(ToolError, match=r"aiecc on Small: .*/aiecc does not start: No such file"):
        build([xclbin(module())], vendor.settings)


def test_a_damaged_entry_is_built_again_with_a_warning(vendor):
    (built,) = build([xclbin(module())], vendor.settings)
    whole = built.file.read_bytes()
    built.file.chmod(0o644)
    built.file.write_bytes(whole[:-1] + b"?")
    with pytest.warns(CacheWarning, match=r"final.xclbin has another content.*building it again"):
        (again,) = build([xclbin(module())], vendor.settings)
    assert again == built and again.file.read_bytes() == whole


def test_a_failure_leaves_no_entry(vendor, tmp_path):
    vendor.mode("aiecc", "fail: error: no")
    with pytest.raises(ToolError):
        build([xclbin(module())], vendor.settings)
    assert [path for path in (tmp_path / "cache" / "iron" / "npu").iterdir() if not path.name.startswith(".")] == []


def test_missing_programs_are_named_together(tmp_path):
    """With what to do about each, once."""
    vendor = Vendor.install(tmp_path / "tools", tmp_path / "cache")
    (vendor.folder / "mlir-aie" / "bin" / "aiecc").unlink()
    bare = attrs.evolve(vendor.settings, xrt=None, path=str(tmp_path))
    with pytest.raises(MissingTool) as caught:
        build([xclbin(module())], bare)
    said = str(caught.value)
    assert "\n" not in said and said.startswith("npu: MLIR_AIE_INSTALL_DIR=")
    assert "has no bin/aiecc; no xclbinutil (XRT): looked in PATH" in said
    assert said.count("Correct or unset MLIR_AIE_INSTALL_DIR.") == 1 and "AIE_XCLBINUTIL" in said


def test_an_elf_needs_no_xclbinutil():
    assert "xclbinutil" not in needed([elf(module())])
    assert "xclbinutil" in needed([xclbin(module(), dev="npu2")])
    assert {"aie-opt", "aie-translate"} <= {*needed([xclbin(module(dynamic=True))])}


def test_two_at_once_build_one_image(vendor):
    """Both wait for the one that began."""
    vendor.mode("aiecc", "sleep 0.2")
    found = []
    threads = [threading.Thread(target=lambda: found.append(build([xclbin(module())], vendor.settings))) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found[0] == found[1] and len(vendor.calls("aiecc")) == 1


def test_the_programs_of_cores_are_measured(vendor):
    (built,) = build([elf(module())], vendor.settings)
    assert program_sizes(built.folder) == {"main_core_0_2": 0x1234}


def test_where_the_cache_cannot_be_used_it_is_built_for_this_process(vendor, tmp_path):
    """With a warning, and once; nothing is written to what others may write to."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.warns(CacheWarning, match=r"others may write to it"):
        (built,) = build([xclbin(module())], vendor.settings)
    assert built.file.is_file() and not list((tmp_path / "cache").iterdir())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert build([xclbin(module())], vendor.settings) == (built,)
    assert len(vendor.calls("aiecc")) == 1


def test_a_home_that_is_no_folder_is_an_error(vendor, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CacheHomeError):
        build([xclbin(module())], attrs.evolve(vendor.settings, cache_home=tmp_path / "file"))


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_ends_what_runs(vendor, tmp_path):
    """No program goes on, no entry is there, and the next build is whole."""
    vendor.mode("aiecc", "sleep 60")
    timer = threading.Thread(target=lambda: (wait_for(lambda: len(vendor.calls("aiecc")) == 2), os.kill(os.getpid(), signal.SIGINT)))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        build([xclbin(module("a")), xclbin(module("b"))], attrs.evolve(vendor.settings, jobs=2))
    timer.join()
    assert not [path for path in (tmp_path / "cache" / "iron" / "npu").iterdir() if not path.name.startswith(".")]
    vendor.mode("aiecc")
    assert build([xclbin(module("a"))], vendor.settings)


def wait_for(happened) -> None:
    until = time.monotonic() + 30
    while not happened() and time.monotonic() < until:
        time.sleep(0.01)


def test_nothing_is_written_where_it_was_called(vendor, tmp_path, monkeypatch):
    here: Path = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    build([xclbin(module())], vendor.settings)
    assert not list(here.iterdir())
