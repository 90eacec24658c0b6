"""Where the vendor's programs are found, in which order, and what is said where they are not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import attrs
import pytest

from iron_npu.errors import MissingTool
from iron_npu.settings import Settings
from iron_npu.tools import programs
from iron_npu.tools.programs import AIECC, CLANG, XCLBINUTIL, Missing, Program, find, found


def program(path: Path, text: str = "#!/bin/sh\necho tool 1.2\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A machine without any of them: PATH, Python's folder and its packages are empty folders."""
    for name in ("bin", "python", "packages"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.setattr(programs, "XRT", tmp_path / "xrt")
    return tmp_path


def settings(here: Path, **more) -> Settings:
    return Settings(path=str(here / "bin"), **more)


def test_mlir_aies_are_taken_from_its_folder_path_pythons_and_the_wheel(here):
    """In this order."""
    wheel = program(here / "packages" / "mlir_aie" / "bin" / "aiecc")
    assert find(AIECC, settings(here)) == Program(AIECC, wheel, "the wheel mlir_aie")
    beside = program(here / "python" / "aiecc")
    assert find(AIECC, settings(here)) == Program(AIECC, beside, "this Python's folder")
    on_path = program(here / "bin" / "aiecc")
    assert find(AIECC, settings(here)) == Program(AIECC, on_path, "PATH")
    own = program(here / "own" / "bin" / "aiecc")
    assert find(AIECC, settings(here, mlir_aie=here / "own")) == Program(AIECC, own, "MLIR_AIE_INSTALL_DIR")


def test_peanos_are_never_those_on_path(here):
    """clang++ there is this machine's."""
    program(here / "bin" / "clang++")
    missing = find(CLANG, settings(here))
    assert isinstance(missing, Missing) and missing.reason == "no clang++ (Peano): looked in the wheel llvm-aie"
    wheel = program(here / "packages" / "llvm-aie" / "bin" / "clang++")
    assert find(CLANG, settings(here)) == Program(CLANG, wheel, "the wheel llvm-aie")
    own = program(here / "peano" / "bin" / "clang++")
    assert find(CLANG, settings(here, peano=here / "peano")) == Program(CLANG, own, "PEANO_INSTALL_DIR")


def test_xclbinutil_is_the_one_named_xrts_or_on_path(here):
    usual = program(here / "xrt" / "bin" / "xclbinutil")
    assert find(XCLBINUTIL, settings(here)) == Program(XCLBINUTIL, usual, str(here / "xrt"))
    on_path = program(here / "bin" / "xclbinutil")
    assert find(XCLBINUTIL, settings(here)) == Program(XCLBINUTIL, on_path, "PATH")
    xrts = program(here / "other" / "bin" / "xclbinutil")
    assert find(XCLBINUTIL, settings(here, xrt=here / "other")) == Program(XCLBINUTIL, xrts, "XILINX_XRT")
    named = program(here / "mine")
    assert find(XCLBINUTIL, settings(here, xclbinutil=named)) == Program(XCLBINUTIL, named, "AIE_XCLBINUTIL")


def test_this_machines_compiler_is_cxx_or_the_first_on_path(here):
    """For the C++ that makes streams."""
    for name in ("clang++", "g++", "c++"):
        first = program(here / "bin" / name)
        assert find(programs.CXX, settings(here)) == Program(programs.CXX, first, "PATH")
    assert find(programs.CXX, settings(here, cxx="g++")) == Program(programs.CXX, here / "bin" / "g++", "CXX")
    assert find(programs.CXX, settings(here, cxx="g++ -m64 '-DA=b c'")) == Program(programs.CXX, here / "bin" / "g++", "CXX")
    for given in ("icpx", "icpx -O2", "g++ '-O2"):
        said = find(programs.CXX, settings(here, cxx=given))
        assert said == Missing(programs.CXX, f"CXX={given} is no program", "Correct or unset CXX.")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (AIECC, "mlir_aie", "MLIR_AIE_INSTALL_DIR={} has no bin/aiecc"),
        (CLANG, "peano", "PEANO_INSTALL_DIR={} has no bin/clang++"),
        (XCLBINUTIL, "xclbinutil", "AIE_XCLBINUTIL={} is no program"),
    ],
)
def test_a_variable_that_names_none_is_refused(here, name, given, said):
    """Though there is another on PATH: whoever set it did not ask for that."""
    program(here / "bin" / name)
    missing = find(name, settings(here, **{given: here / "nowhere"}))
    variable = said.partition("=")[0]
    assert missing == Missing(name, said.format(here / "nowhere"), f"Correct or unset {variable}.")


@pytest.mark.skipif(os.geteuid() != 0, reason="who may run what")
def test_a_file_that_may_not_be_run_is_no_program(here):
    program(here / "bin" / "aiecc").chmod(0o644)
    assert isinstance(find(AIECC, settings(here)), Missing)
    program(here / "own" / "bin" / "aiecc").chmod(0o644)
    assert isinstance(find(AIECC, settings(here, mlir_aie=here / "own")), Missing)


def test_all_that_is_missing_is_one_error(here):
    """A sentence of advice for each owner, once."""
    program(here / "bin" / "aiecc")
    with pytest.raises(MissingTool) as caught:
        found((AIECC, CLANG, programs.LINKER, XCLBINUTIL), settings(here))
    said = str(caught.value)
    assert said.startswith("npu: no clang++ (Peano): looked in the wheel llvm-aie; no ld.lld (Peano)") and "no aiecc" not in said
    assert said.count("PEANO_INSTALL_DIR") == 1 and said.count("AIE_XCLBINUTIL") == 1
    assert "pip install" not in said and "\n" not in said


def test_every_program_has_an_owner_and_advice():
    assert all(origin.fix.endswith(".") and "pip install" not in origin.fix for origin in programs.ORIGINS.values())
    assert all(hasattr(Settings(), origin.setting) for origin in programs.ORIGINS.values())


def test_a_program_is_known_by_its_bytes_and_says_its_version(here):
    path = program(here / "bin" / "aiecc", "#!/bin/sh\necho aiecc\necho 'version 1.3 (of today)'\n")
    one = find(AIECC, settings(here))
    assert one.version == "version 1.3 (of today)" and one.folder == here
    before = one.identity
    assert attrs.evolve(one).identity == before
    program(path, "#!/bin/sh\nexit 1\n")
    assert one.identity != before and one.version == ""
    link = here / "link"
    link.symlink_to(path)
    assert Program(AIECC, link, "").identity == one.identity
