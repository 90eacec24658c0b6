"""The kernel cache: what is compiled anew, what is not, and what is left when compiling goes wrong."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import iron_host
from iron_core.cache.store import CacheWarning
from iron_core.errors import CacheError, DeclarationError
from iron_host import build, compiler
from iron_host.slots import Slots

# One small kernel, loaded and called: 3 + 4.
CODE = """
import ctypes, numpy as np
from iron_host import build
from iron_host.build import Unit
unit = Unit("elementwise.h", "binary<op::Add, float>", "iron_sum")
a, b, y = (np.full(8, v, np.float32) for v in (3, 4, 0))
args = np.zeros(64, np.int64)
args[:3] = [x.ctypes.data for x in (a, b, y)]
args[8] = 8
ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(build.load([unit])[unit])(args.ctypes.data, 0, 1)
assert (y == 7).all(), y
"""

SCRIPT = """#!/bin/sh
PATH="$PATH:/usr/bin:/bin"
case "$*" in *--version*) read -r line < {folder}/version; echo "$line"; exit 0;; esac
echo "$*" >> {folder}/log
. {folder}/mode
exec {real} "$@"
"""


class Stand:
    """A compiler that hands on to the real one, counts what it is asked to compile, and can be made to misbehave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.real = compiler.find()
        self.script = folder / "compiler"
        self.script.write_text(SCRIPT.format(folder=folder, real=shlex.join(self.real.command)))
        self.script.chmod(0o755)
        self.version("compiler 1.0")
        self.mode("")

    def version(self, text: str) -> None:
        (self.folder / "version").write_text(text + "\n")

    def mode(self, text: str) -> None:
        """Shell lines run before the real compiler."""
        (self.folder / "mode").write_text(text + "\n")

    @property
    def lines(self) -> list[str]:
        """The compiler's command lines so far."""
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def left(self) -> list[str]:
        """Folders in the cache: whole entries, and what a crash left."""
        places = (self.cache / "iron" / "host").glob("*")
        return [p.name for p in places if p.is_dir() and p.name != "zig"]

    def start(self, path: Path | None = None, **env: str) -> subprocess.Popen[str]:
        given = {"CXX": str(self.script), "NPU_CACHE_HOME": str(self.cache), **dict(self.real.environment), **env}
        if path is not None:
            given["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen([sys.executable, "-c", CODE], env=os.environ | given, stderr=subprocess.PIPE, text=True)

    def run(self, path: Path | None = None, **env: str) -> None:
        """Load the kernel in a new process, which must succeed."""
        process = self.start(path, **env)
        errors = process.communicate()[1]
        assert process.returncode == 0, errors


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_a_kernel_is_compiled_once(stand):
    """The second process finds what the first one made."""
    stand.run()
    stand.run()
    assert len(stand.lines) == 1
    assert len(stand.left) == 1


def test_an_edited_header_is_another_kernel_and_a_touched_one_is_not(stand):
    """Content decides: of the header a kernel names, and of those that one includes."""
    package = stand.folder / "site" / "iron_host"
    shutil.copytree(Path(iron_host.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    stand.run(package.parent)
    for header in (package / "csrc").glob("*.h"):
        header.touch()
    stand.run(package.parent)
    assert len(stand.lines) == 1
    for count, name in ((2, "elementwise.h"), (3, "common.h"), (4, "iron_host.h")):
        with (package / "csrc" / name).open("a") as file:
            file.write("// edited\n")
        stand.run(package.parent)
        assert len(stand.lines) == count
    with (package / "csrc" / "sample.h").open("a") as file:
        file.write("// not included\n")
    stand.run(package.parent)
    assert len(stand.lines) == 4


def key_of(folder: Path, slots: tuple[Slots, ...] = (), **files: str) -> str:
    """The key of a pack's kernel in rows.h, with its files written to a folder."""
    for name, text in {"rows": '#include "elementwise.h"\n#include "mine.h"\n', "mine": "", **files}.items():
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.h").write_text(text)
    unit = build.Unit(build.Header(folder / "rows.h", slots), "acme::kernel<float>", "acme")
    return build.key(unit.text, compiler.find(), unit.own)


def test_a_packs_kernel_is_known_by_what_it_is_made_of(tmp_path):
    """Its header, those beside it, its slots: an edit of any is another kernel. Where they lie is not."""
    first = key_of(tmp_path / "a")
    assert first == key_of(tmp_path / "b")
    other = [
        key_of(tmp_path / "c", mine="// edited"),
        key_of(tmp_path / "d", rows='#include "mine.h"'),
        key_of(tmp_path / "e", (Slots("acme::Mine", ints=("n",)),)),
        key_of(tmp_path / "f", (Slots("acme::Mine", ints=("m",)),)),
    ]
    assert len({first, *other}) == 5


def test_a_packs_header_comes_before_ours(tmp_path):
    """A name that both have is the pack's for the pack, and ours for our own headers."""
    key_of(tmp_path / "a", mine='#include "common.h"', common="// the pack's")
    found = build.headers(b'#include "rows.h"\n', build.Header(tmp_path / "a" / "rows.h"))
    names = {str(tmp_path / "a" / name) for name in ("rows.h", "mine.h", "common.h")}
    names |= {str(build.SOURCES / name) for name in ("elementwise.h", "common.h", "iron_host.h")}
    assert set(found) == {*names, "slots.h"}


def test_a_pack_without_its_header_is_told(tmp_path):
    """As its lowering is loaded, not by the compiler."""
    with pytest.raises(DeclarationError, match=r"no such file.*in its wheel too"):
        build.Header(tmp_path / "forgotten.h")


def test_another_compiler_version_compiles_again(stand):
    """One version's code is not taken for another's, and each keeps its own."""
    stand.run()
    stand.version("compiler 2.0")
    stand.run()
    assert len(stand.lines) == 2
    stand.version("compiler 1.0")
    stand.run()
    assert len(stand.lines) == 2


def test_arguments_in_cxx_are_passed_on(stand):
    """$CXX may hold arguments; other arguments, other code."""
    stand.run(CXX=f"{stand.script} -DMINE=1")
    assert "-DMINE=1" in stand.lines[0]
    stand.run(CXX=f"{stand.script} -DMINE=2")
    assert len(stand.lines) == 2


def test_a_failing_compile_leaves_nothing_and_says_one_line(stand):
    """The compiler's first error, no entry, and the next try works."""
    stand.mode("""echo "x.cpp:1:1: error: first" >&2; echo "x.cpp:2:1: error: second" >&2; exit 1""")
    process = stand.start()
    last = process.communicate()[1].splitlines()[-1]
    assert process.returncode
    assert "did not compile iron_sum.cpp: x.cpp:1:1: error: first" in last
    assert stand.left == []
    stand.mode("")
    stand.run()
    assert len(stand.left) == 1


def test_a_compiler_that_makes_nothing_leaves_nothing(stand):
    """Success without a file is a failure too."""
    stand.mode("exit 0")
    process = stand.start()
    assert "made no file of iron_sum.cpp" in process.communicate()[1].splitlines()[-1]
    assert process.returncode
    assert stand.left == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this platform has no SIGKILL")
def test_killed_while_compiling(stand):
    """A half-written file of a process killed meanwhile is never loaded, and is swept away."""
    stand.mode(
        f'for last in "$@"; do case "$last" in *.so) printf half > "$last";; esac; done; echo $$ > {stand.folder}/pid; exec sleep 600'
    )
    process = stand.start()
    until = time.monotonic() + 60
    pid = stand.folder / "pid"
    while not (pid.exists() and pid.read_text().endswith("\n")) and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert len(stand.left) == 1  # unfinished
    os.kill(int(pid.read_text()), signal.SIGKILL)
    stand.mode("")
    stand.run()
    assert len(stand.left) == 1
    assert not stand.left[0].startswith(".")


def test_two_processes_compile_at_once(stand):
    """Both go on with one entry, compiled by one of them."""
    stand.mode("sleep 0.5")
    both = [stand.start(), stand.start()]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert len(stand.lines) == 1
    assert len(stand.left) == 1


@pytest.fixture
def loads(stand, monkeypatch):
    """Load the kernel in this process, over the stand's cache."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(stand.cache))
    unit = build.Unit("elementwise.h", "binary<op::Add, float>", "iron_sum")
    monkeypatch.setattr(build, "_loaded", {})
    return lambda: build.load([unit])[unit]


def test_a_damaged_kernel_is_compiled_again(stand, loads):
    """A library that is not what the compiler wrote is never loaded."""
    loads()
    (library,) = (stand.cache / "iron" / "host").glob("*/kernel.so")
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.unlink()  # another file: the one that is loaded stays as it is
    library.write_bytes(content)
    build._loaded.clear()
    with pytest.warns(CacheWarning, match=r"kernel.so has another content.*building it again"):
        loads()
    assert bytes(content) != library.read_bytes()


@pytest.mark.parametrize(
    "said", ["ld: final link failed: No space left on device", "fatal error: error writing to x.s: Disk quota exceeded"]
)
def test_a_disk_that_is_full_is_named(stand, said):
    """Of what a compiler says when the disk is full the folder is worth a word, and that it is full."""
    stand.mode(f'echo "{said}" >&2; exit 1')
    process = stand.start()
    *warned, last = process.communicate()[1].splitlines()
    assert process.returncode
    assert "CacheError" in last and f"NPU_CACHE_HOME: {stand.cache} cannot be used (the disk" in last and "is full" in last
    assert "Nor can kernels be compiled for this process alone" in last and any("nothing is kept" in line for line in warned)
    assert stand.left == []


def test_where_nothing_can_be_kept_kernels_are_compiled_for_the_process(stand, loads, tmp_path, monkeypatch):
    """A folder that is somebody else's, full or read-only does not stop a run; what was compiled meanwhile is gone after it."""
    stand.cache.mkdir()
    stand.cache.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / "temporary").mkdir()
    process = stand.start()
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert errors.count("others may write to it") == 1 and "nothing is kept from one start to the next" in errors
    assert list(stand.cache.iterdir()) == list((tmp_path / "temporary").iterdir()) == []


def test_a_name_that_is_no_folder_is_refused(stand):
    """What the user can put right is not worked around."""
    stand.cache.touch()
    process = stand.start()
    assert "CacheHomeError: NPU_CACHE_HOME" in process.communicate()[1].splitlines()[-1]
    assert process.returncode and stand.lines == []


def test_a_library_that_may_not_be_loaded_from_its_place_is_loaded_from_memory(stand, loads, monkeypatch):
    """As on a file system mounted noexec."""
    real, tried = ctypes.CDLL, []

    def refused(name, *more, **options):
        tried.append(name)
        if str(stand.cache) in str(name):
            raise OSError(f"{name}: failed to map segment from shared object")
        return real(name, *more, **options)

    monkeypatch.setattr(ctypes, "CDLL", refused)
    assert loads()
    assert [name.startswith("/proc/self/fd/") for name in tried] == [False, True]
    monkeypatch.setattr(os, "memfd_create", lambda *_: (_ for _ in ()).throw(OSError(13, "Permission denied")))
    build._loaded.clear()
    with pytest.raises(CacheError, match=r"NPU_CACHE_HOME: .*failed to map segment.*nor can kernels be loaded from memory"):
        loads()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root mounts")
def test_a_cache_mounted_noexec_is_used(stand, tmp_path):
    """Kernels are kept there, and loaded from memory."""
    (tmp_path / "cache").mkdir()
    mounted = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o noexec none {tmp_path}/cache && "$@" && "$@"', "-"]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    env = os.environ | {"CXX": str(stand.script), "NPU_CACHE_HOME": str(stand.cache)}
    done = subprocess.run([*mounted, sys.executable, "-c", CODE], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(stand.lines) == 1
