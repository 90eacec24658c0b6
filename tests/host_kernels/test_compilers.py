"""Which compiler is taken, and how it is named."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from iron_core import processes
from iron_core.backends.protocol import Unavailable
from iron_core.errors import BackendUnavailable
from iron_host import compiler


def program(folder: Path, name: str, says: str) -> Path:
    """A program that prints `says`, whatever it is asked."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with neither compiler nor wheel: PATH is one empty folder."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("IRON_HOST_CXXFLAGS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(processes, "find_spec", lambda name: None)
    compiler._find.cache_clear()
    yield tmp_path / "bin"
    compiler._find.cache_clear()


def test_no_compiler_says_what_was_looked_for(bare):
    """One line, with what to install."""
    state = compiler.probe()
    assert isinstance(state, Unavailable)
    assert "c++, g++ and clang++" in state.reason and "zig extra" in state.fix
    with pytest.raises(BackendUnavailable, match="no C\\+\\+ compiler"):
        compiler.find()


def test_cxx_comes_first_then_the_path_in_order(bare, monkeypatch):
    """$CXX, then c++, g++, clang++."""
    for tool, name in (("clang++", "clang version 18.1.0"), ("g++", "g++ (Debian) 12.2.0"), ("c++", "c++ (Debian) 13.1.0")):
        program(bare, tool, name)
        compiler._find.cache_clear()
        assert Path(compiler.find().command[0]).name == tool
    other = program(bare.parent / "elsewhere", "icpx", "icpx 2025.1")
    monkeypatch.setenv("CXX", f"{other} -O2")
    assert compiler.find().command == (str(other), "-O2")
    assert compiler.find().name == "icpx 2025.1"


@pytest.mark.parametrize("given", ["no-such-compiler", "no-such-compiler -O2", "g++ '-O2", "false"])
def test_a_cxx_that_does_not_run_is_refused(bare, monkeypatch, given):
    """Whoever set it did not ask for another compiler, so none is taken: one line names it."""
    program(bare, "g++", "g++ (Debian) 12.2.0")
    monkeypatch.setenv("CXX", given)
    state = compiler.probe()
    assert isinstance(state, Unavailable)
    assert repr(given) in state.reason and "unset CXX" in state.fix


def test_an_empty_cxx_is_none(bare, monkeypatch):
    """CXX= in a script does not mean a compiler without a name."""
    program(bare, "g++", "g++ (Debian) 12.2.0")
    monkeypatch.setenv("CXX", " ")
    assert compiler.find().name == "g++ 12.2"


@pytest.mark.parametrize("call", ["{zig} cc", "{zig} c++"])
def test_zig_is_known_however_it_is_called(bare, monkeypatch, tmp_path, call):
    """Its own name and version, its caches inside ours, and its own flags."""
    zig = program(bare, "zig", "0.15.2")
    monkeypatch.setenv("CXX", call.format(zig=zig))
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "home"))
    found = compiler.find()
    assert found.name == "zig 0.15"
    assert "-fno-sanitize=undefined" in found.flags
    places = dict(found.environment)
    assert set(places) == {"ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"}
    assert all(Path(place).is_relative_to(tmp_path / "home") for place in places.values())


def test_the_wheel_is_the_last_resort(bare, monkeypatch):
    """Without a compiler on PATH the ziglang wheel compiles; with one it does not."""
    monkeypatch.setattr(processes, "find_spec", lambda name: name == "ziglang" or None)
    monkeypatch.setattr(sys, "executable", str(program(bare, "python", "0.15.2")))
    assert compiler.find().command[1:] == ("-m", "ziglang", "cc")
    program(bare, "g++", "g++ (Debian) 12.2.0")
    compiler._find.cache_clear()
    assert compiler.find().name == "g++ 12.2"


@pytest.mark.parametrize("machine, flag", [("x86_64", "-march=native"), ("aarch64", "-mcpu=native"), ("arm64", "-mcpu=native")])
def test_code_is_for_this_very_processor(machine, flag):
    """By the flag that says so of its kind; the compilers' command lines have this machine's."""
    assert compiler.native(machine) == flag
    assert compiler.native(platform.machine()) in compiler.FLAGS


def test_code_belongs_to_a_processor_and_flags(monkeypatch):
    """`NATIVE` means another thing on another machine: it has kernels of its own."""
    here = compiler.Compiler(("c++",), "c++ 1.0")
    before = here.identity
    assert before == compiler.Compiler(("c++",), "c++ 1.0").identity
    assert before != compiler.Compiler(("c++",), "c++ 1.0", flags=("-O1",)).identity
    monkeypatch.setattr(compiler, "cpu", lambda: "another processor")
    assert here.identity != before


def test_flags_of_ones_own_come_last_and_make_other_code(bare, monkeypatch):
    """$IRON_HOST_CXXFLAGS follows our flags and is part of what the cache knows a kernel by; an open quote is refused."""
    program(bare, "g++", "g++ (Debian) 12.2.0")
    plain = compiler.find()
    monkeypatch.setenv("IRON_HOST_CXXFLAGS", "-O1 -DIS='a b'")
    assert compiler.find().flags == (*plain.flags, "-O1", "-DIS=a b")
    assert compiler.find().identity != plain.identity
    monkeypatch.setenv("IRON_HOST_CXXFLAGS", "'-O1")
    state = compiler.probe()
    assert isinstance(state, Unavailable) and "IRON_HOST_CXXFLAGS" in state.reason
