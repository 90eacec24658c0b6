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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iron_core.cache.store import CacheWarning
from iron_core.errors import BackendUnavailable, CacheError, CacheHomeError, DeclarationError
from iron_core.processes import Running
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

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process use it."""
        return {"CXX": str(self.script), "NPU_CACHE_HOME": str(self.cache), **dict(self.real.environment)}

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", CODE], env=os.environ | self.environment, stderr=subprocess.PIPE, text=True)

    def run(self) -> None:
        """Load the kernel in a new process, which must succeed."""
        process = self.start()
        errors = process.communicate()[1]
        assert process.returncode == 0, errors


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


@pytest.fixture
def loads(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """`loads()`: load the kernel in this process, which knows no more than one that has just started; `cxx` is its $CXX."""
    for name, value in stand.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(build, "_loaded", {})
    unit = build.Unit("elementwise.h", "binary<op::Add, float>", "iron_sum")

    def forget() -> None:
        build._loaded.clear()
        build._header_digest.cache_clear()
        compiler._find.cache_clear()

    def load(cxx: str = str(stand.script)) -> int:
        monkeypatch.setenv("CXX", cxx)
        forget()
        return build.load([unit])[unit]

    yield load
    forget()


def test_a_kernel_is_compiled_once(stand):
    """The second process finds what the first one made."""
    stand.run()
    stand.run()
    assert len(stand.lines) == 1
    assert len(stand.left) == 1


def test_other_flags_load_another_kernel_in_the_same_process(stand, loads, monkeypatch):
    """What is loaded is known by what compiled it, as what is cached is; the first is still there under its own flags."""
    unit = build.Unit("elementwise.h", "binary<op::Add, float>", "iron_sum")
    plain = loads()
    monkeypatch.setenv("IRON_HOST_CXXFLAGS", "-DIS=1")
    other = build.load([unit])[unit]
    assert other != plain and len(stand.lines) == 2
    monkeypatch.delenv("IRON_HOST_CXXFLAGS")
    assert build.load([unit])[unit] == plain


def test_an_edited_header_is_another_kernel_and_a_touched_one_is_not(stand, loads, monkeypatch):
    """Content decides: of the header a kernel names, and of those that one includes."""
    headers = stand.folder / "csrc"
    shutil.copytree(build.SOURCES, headers)
    monkeypatch.setattr(build, "SOURCES", headers)
    loads()
    for header in headers.glob("*.h"):
        header.touch()
    loads()
    assert len(stand.lines) == 1
    for count, name in ((2, "elementwise.h"), (3, "common.h"), (4, "iron_host.h")):
        with (headers / name).open("a") as file:
            file.write("// edited\n")
        loads()
        assert len(stand.lines) == count
    with (headers / "sample.h").open("a") as file:
        file.write("// not included\n")
    loads()
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
    names |= {str(build.SOURCES / name) for name in ("elementwise.h", "common.h", "neon.h", "vectors.h", "x86.h", "iron_host.h")}
    assert set(found) == {*names, "slots.h"}


def test_a_pack_without_its_header_is_told(tmp_path):
    """As its lowering is loaded, not by the compiler."""
    with pytest.raises(DeclarationError, match=r"no such file.*in its wheel too"):
        build.Header(tmp_path / "forgotten.h")


def test_another_compiler_version_compiles_again(stand, loads):
    """One version's code is not taken for another's, and each keeps its own."""
    loads()
    stand.version("compiler 2.0")
    loads()
    assert len(stand.lines) == 2
    stand.version("compiler 1.0")
    loads()
    assert len(stand.lines) == 2


def test_arguments_in_cxx_are_passed_on(stand, loads):
    """$CXX may hold arguments; other arguments, other code."""
    loads(f"{stand.script} -DMINE=1")
    assert "-DMINE=1" in stand.lines[0]
    loads(f"{stand.script} -DMINE=2")
    assert len(stand.lines) == 2


def test_a_failing_compile_leaves_no_entry_and_says_all_that_the_compiler_said(stand, loads):
    """Its first error on the first line, then its words; the source and a log are kept, and the next try works."""
    stand.mode("""echo "x.cpp:1:1: error: first" >&2; echo "x.cpp:2:1: error: second" >&2; exit 1""")
    with pytest.raises(BackendUnavailable, match=r"did not compile iron_sum\.cpp: x\.cpp:1:1: error: first") as told:
        loads()
    first, *words = str(told.value).splitlines()
    assert "second" not in first and words == ["x.cpp:1:1: error: first", "x.cpp:2:1: error: second"]
    assert stand.left == []
    kept = Path(first.partition("Source and log are in ")[2].rstrip("."))
    assert kept.parent == stand.cache / "iron" / "failed" and 'extern "C" void iron_sum' in (kept / "iron_sum.cpp").read_text()
    assert (kept / "iron_sum.log").read_text().splitlines()[1:] == words
    stand.mode("")
    loads()
    assert len(stand.left) == 1


def test_a_compiler_that_makes_nothing_leaves_nothing(stand, loads):
    """Success without a file is a failure too."""
    stand.mode("exit 0")
    with pytest.raises(BackendUnavailable, match=r"made no file of iron_sum\.cpp"):
        loads()
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


@pytest.mark.skipif(os.name != "posix", reason="signals that a process may ignore")
def test_a_compiler_that_starts_once_all_were_ended():
    """Is killed, whatever it hears: nobody comes back to it."""
    running = Running()
    running.end()
    deaf = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; sleep 600"], stdout=subprocess.PIPE, encoding="utf-8", process_group=0
    )
    with deaf:
        assert deaf.stdout.readline() == "\n"
        running.add(deaf)
        assert deaf.wait(60) == -signal.SIGKILL


def test_two_processes_compile_at_once(stand):
    """Both go on with one entry, compiled by one of them."""
    stand.mode("sleep 0.5")
    both = [stand.start(), stand.start()]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert len(stand.lines) == 1
    assert len(stand.left) == 1


def test_a_damaged_kernel_is_compiled_again(stand, loads):
    """A library that is not what the compiler wrote is never loaded."""
    loads()
    (library,) = (stand.cache / "iron" / "host").glob("*/kernel.so")
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.unlink()  # another file: the one that is loaded stays as it is
    library.write_bytes(content)
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


def test_a_name_that_is_no_folder_is_refused(stand, loads):
    """What the user can put right is not worked around."""
    stand.cache.touch()
    with pytest.raises(CacheHomeError, match="NPU_CACHE_HOME"):
        loads()
    assert stand.lines == []


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
    with pytest.raises(CacheError, match=r"NPU_CACHE_HOME: .*failed to map segment.*nor can kernels be loaded from memory"):
        loads()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root mounts")
def test_a_cache_mounted_noexec_is_used(stand, tmp_path):
    """Kernels are kept there, and loaded from memory."""
    (tmp_path / "cache").mkdir()
    mounted = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o noexec none {tmp_path}/cache && "$@" && "$@"', "-"]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    env = os.environ | stand.environment
    done = subprocess.run([*mounted, sys.executable, "-c", CODE], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(stand.lines) == 1
