"""The cache: an entry is whole or not there, however many processes fill it and however they end."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest

from iron_core.cache import keylock
from iron_core.cache.home import home
from iron_core.cache.store import Cache, CacheWarning
from iron_core.errors import CacheError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    return Cache("test")


def write(text):
    return lambda folder: (folder / "data.txt").write_text(text)


def process(code, *args):
    """A Python process that fills the cache; its working directory is no cache."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)], stdout=subprocess.PIPE, text=True
    )


def leftovers(cache):
    return sorted(path.name for path in cache.folder.iterdir() if path.name.startswith("."))


def test_the_cache_lies_where_npu_cache_home_says(cache, tmp_path):
    """`NPU_CACHE_HOME/iron/<backend>/<key>/`."""
    assert cache.entry("k", write("1")) == tmp_path / "cache" / "iron" / "test" / "k"


def test_the_cache_lies_in_the_home_folder_otherwise(monkeypatch, tmp_path):
    """`~/.npu/cache` without the variable."""
    monkeypatch.delenv("NPU_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".npu" / "cache"


def test_an_entry_is_built_once(cache):
    """The second asker gets the first one's files."""
    cache.entry("k", write("first"))
    assert (cache.entry("k", write("second")) / "data.txt").read_text() == "first"
    assert leftovers(cache) == []


def test_a_failed_build_leaves_nothing(cache):
    """What `build` raises comes through and the key stays empty."""

    def fail(folder):
        (folder / "half").write_text("half")
        raise RuntimeError("compiler died")

    with pytest.raises(RuntimeError, match="compiler died"):
        cache.entry("k", fail)
    assert cache.get("k") is None
    assert list(cache.folder.iterdir()) == []


#: What may have become of an entry: each is given its folder, and another key's.
HARMS = {
    "a bit flipped": lambda entry, other: flip(entry / "data.txt", 7),
    "the last byte changed": lambda entry, other: flip(entry / "data.txt", 8 * 9 - 1),
    "a page of zeros": lambda entry, other: (entry / "data.txt").write_bytes(bytes(9)),
    "cut short": lambda entry, other: os.truncate(entry / "data.txt", 3),
    "longer": lambda entry, other: (entry / "data.txt").write_text("good data+"),
    "empty": lambda entry, other: os.truncate(entry / "data.txt", 0),
    "missing": lambda entry, other: (entry / "data.txt").unlink(),
    "a folder for the file": lambda entry, other: instead(entry / "data.txt", Path.mkdir),
    "a link that leads to itself": lambda entry, other: instead(entry / "data.txt", lambda path: path.symlink_to(path)),
    "a link that leads nowhere": lambda entry, other: instead(entry / "data.txt", lambda path: path.symlink_to("nowhere")),
    "a link to another's file": lambda entry, other: instead(entry / "data.txt", lambda path: path.symlink_to(other / "data.txt")),
    "a pipe for the file": lambda entry, other: instead(entry / "data.txt", os.mkfifo),
    "another's file": lambda entry, other: shutil.copy(other / "data.txt", entry),
    "no manifest": lambda entry, other: (entry / "entry.json").unlink(),
    "an empty manifest": lambda entry, other: (entry / "entry.json").write_text(""),
    "half a manifest": lambda entry, other: os.truncate(entry / "entry.json", 40),
    "a manifest of nothing": lambda entry, other: (entry / "entry.json").write_text("null"),
    "a manifest without end": lambda entry, other: (entry / "entry.json").write_text("[" * 100_000),
    "a manifest that is no text": lambda entry, other: (entry / "entry.json").write_bytes(bytes(range(128, 256))),
    "a manifest without hashes": lambda entry, other: manifest(entry, files={"data.txt": [9, None]}),
    "a manifest of odd files": lambda entry, other: manifest(entry, files={"../data.txt": [9, "0" * 64]}),
    "a manifest of odd sizes": lambda entry, other: manifest(entry, files={"data.txt": ["9", "0" * 64]}),
    "a manifest of no sizes": lambda entry, other: manifest(entry, files={"data.txt": [None, hashlib.sha256(b"good data").hexdigest()]}),
    "a manifest with a NUL": lambda entry, other: manifest(entry, files={"da\0ta": [9, "0" * 64]}),
    "a format to come": lambda entry, other: manifest(entry, format=99),
    "a format that is none": lambda entry, other: manifest(entry, format=[1]),
    "another's manifest": lambda entry, other: shutil.copy(other / "entry.json", entry),
    "a pipe for the manifest": lambda entry, other: instead(entry / "entry.json", os.mkfifo),
    "a folder for the manifest": lambda entry, other: instead(entry / "entry.json", Path.mkdir),
    "another's entry": lambda entry, other: instead(entry, lambda path: shutil.copytree(other, path)),
    "a link to another's entry": lambda entry, other: instead(entry, lambda path: path.symlink_to(other)),
    "a file for the entry": lambda entry, other: instead(entry, Path.touch),
    "a pipe for the entry": lambda entry, other: instead(entry, os.mkfifo),
    "an empty folder": lambda entry, other: instead(entry, Path.mkdir),
    "an entry that is a link to itself": lambda entry, other: instead(entry, lambda path: path.symlink_to(path)),
    "an entry that is a link to nowhere": lambda entry, other: instead(entry, lambda path: path.symlink_to("nowhere")),
    "others may write to it": lambda entry, other: entry.chmod(0o777),
    "others may write to the file": lambda entry, other: (entry / "data.txt").chmod(0o666),
    "no one may read it": lambda entry, other: (entry / "data.txt").chmod(0),
}


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def instead(path, make):
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def manifest(entry, **changes):
    file = entry / "entry.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("use", ["entry", "read"])
def test_a_damaged_entry_is_rebuilt_with_one_warning(cache, harm, use):
    """Whatever became of an entry, it is not given out; it is said once, built again, and whole from then on."""
    if harm == "no one may read it" and os.geteuid() == 0:
        pytest.skip("root may read everything")

    def asked(key, text):
        if use == "entry":
            return (cache.entry(key, write(text)) / "data.txt").read_bytes()
        found = cache.read(key, "data.txt")
        if found is None:
            cache.keep(key, "data.txt", text.encode())
        return found or text.encode()

    asked("k", "good data")
    asked("other", "bad  data")
    HARMS[harm](cache.path("k"), cache.path("other"))
    assert cache.get("k") is None and cache.read("k", "data.txt") is None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore")  # of what others left open, and is collected meanwhile
        warnings.simplefilter("always", CacheWarning)
        assert asked("k", "good data") == b"good data"
    assert [w.category for w in said] == [CacheWarning] and "building it again" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asked("k", "not asked") == b"good data"
        assert asked("other", "not asked") == b"bad  data"
    assert leftovers(cache) == []


def test_two_entries_that_changed_places_are_both_rebuilt(cache, tmp_path):
    """An entry says whose it is."""
    one, two = cache.entry("one", write("1")), cache.entry("two", write("2"))
    one.rename(tmp_path / "kept")
    two.rename(one)
    (tmp_path / "kept").rename(two)
    with pytest.warns(CacheWarning, match="another key's"):
        assert (cache.entry("one", write("1")) / "data.txt").read_text() == "1"
    with pytest.warns(CacheWarning, match="another key's"):
        assert (cache.entry("two", write("2")) / "data.txt").read_text() == "2"


def test_a_process_without_files_to_spare_takes_no_entry_for_damaged(cache, monkeypatch):
    """What the process is short of is no fault of the cache: an error, and nothing is rebuilt. A page the disk lost is one."""
    cache.entry("k", write("good"))
    before = cache.path("k").stat().st_ino
    opened = os.open
    number = errno.EMFILE

    def refuse(path, *how, **where):
        if path == "data.txt" or path == cache.path("k"):
            raise OSError(number, os.strerror(number))
        return opened(path, *how, **where)

    monkeypatch.setattr(os, "open", refuse)
    for use in (lambda: cache.get("k"), lambda: cache.read("k", "data.txt"), lambda: cache.entry("k", write("new"))):
        with pytest.raises(CacheError, match="Too many open files"):
            use()
    assert cache.path("k").stat().st_ino == before
    number = errno.EIO
    assert cache.get("k") is None and cache.read("k", "data.txt") is None


def test_an_older_irons_entry_is_replaced_without_a_word(cache):
    """An upgrade is no damage."""
    manifest(cache.entry("k", write("old")), format=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (cache.entry("k", write("new")) / "data.txt").read_text() == "new"


def test_who_reads_an_entry_keeps_it_when_another_replaces_it(cache):
    """`keep(replace=True)` puts another entry in the place; a file that is open stays as it is."""
    cache.keep("k", "data.txt", b"old")
    with (cache.path("k") / "data.txt").open("rb") as opened:
        cache.keep("k", "data.txt", b"new")
        assert cache.read("k", "data.txt") == b"old"
        cache.keep("k", "data.txt", b"new", replace=True)
        assert opened.read() == b"old" and cache.read("k", "data.txt") == b"new"


def test_an_entry_is_on_the_disk_before_it_is_in_its_place(cache, monkeypatch):
    """Every file, the manifest and the folder are synced before the rename, the folder above after it; the files whole."""
    done, bytes_then = [], {}

    def sync(descriptor):
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        bytes_then[done[-1].name] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", sync)
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, to: (done.append("rename"), rename(self, to))[1])
    entry = cache.entry("k", write("good"))
    *first, folder, renamed, above = done
    assert [path.name for path in first] == ["data.txt", "entry.json"]
    assert folder == first[0].parent and renamed == "rename" and above == cache.folder
    assert all((entry / path.name).stat().st_size == bytes_then[path.name] > 0 for path in first)


def test_nothing_is_left_where_the_disk_fails_to_sync(cache, monkeypatch):
    """What may not be on the disk is no entry."""

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CacheError, match="Input/output error"):
        cache.entry("k", write("good"))
    assert list(cache.folder.iterdir()) == []


def test_a_lock_on_a_removed_file_is_none(cache):
    """Who waited for a lock whose file its holder removed takes the file that is there now, and waits for that."""
    cache.folder.mkdir(parents=True)
    file = cache.folder / ".k.lock"
    first = os.open(file, os.O_RDWR | os.O_CREAT)
    fcntl.flock(first, fcntl.LOCK_EX)
    begun = threading.Event()

    def build(folder):
        begun.set()
        write("good")(folder)

    waiting = threading.Thread(target=cache.entry, args=("k", build))
    waiting.start()
    until(lambda: waited_for(first))
    file.unlink()
    second = os.open(file, os.O_RDWR | os.O_CREAT)  # a third process that came after the first one removed its file
    fcntl.flock(second, fcntl.LOCK_EX)
    os.close(first)
    until(lambda: begun.is_set() or waited_for(second))
    assert not begun.is_set()
    file.unlink()
    os.close(second)
    waiting.join(60)
    assert begun.is_set() and cache.get("k") is not None and leftovers(cache) == []


def waited_for(descriptor):
    """Does somebody wait for the lock of this open file?"""
    inode = os.fstat(descriptor).st_ino
    return any("->" in line and f":{inode} " in line for line in Path("/proc/locks").read_text().splitlines())


def until(happened):
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def test_a_fork_closes_no_file_that_took_a_locks_number(tmp_path):
    """A child closes its copies of the locks that are held at the fork; one that was let go is some other file by then."""
    with keylock.locked(tmp_path, "k"):
        pass

    def is_open(descriptor):
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True

    ours = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]  # the lowest numbers that are free, the lock's among them
    child = os.fork()
    if not child:
        os._exit(sum(not is_open(descriptor) for descriptor in ours))
    for descriptor in ours:
        os.close(descriptor)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("odd", ["folder", "link", "loop", "pipe"])
def test_an_odd_lock_file_locks_nobody_out(cache, odd):
    """A folder, a link or a pipe in the place of a lock is taken away."""
    cache.folder.mkdir(parents=True)
    file = cache.folder / ".k.lock"
    aim = cache.folder.parent / "aim"
    place = {"folder": file.mkdir, "link": lambda: file.symlink_to(aim), "loop": lambda: file.symlink_to(file)}
    place.get(odd, lambda: os.mkfifo(file))()
    assert (cache.entry("k", write("good")) / "data.txt").read_text() == "good"
    assert leftovers(cache) == [] and not aim.exists()


def test_a_process_holds_some_entries_open_not_all(cache, monkeypatch):
    """However many it uses: file descriptors are few."""
    monkeypatch.setattr("iron_core.cache.store._MOST_HELD", 0)
    before = len(os.listdir("/proc/self/fd"))
    for key in "abc":
        assert (cache.entry(key, write(key)) / "data.txt").read_text() == key
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_cache_below_a_regular_file_is_one_clear_error(tmp_path, monkeypatch):
    """Nobody can make a folder there, root neither: one line naming the variable, the folder and what to do."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match=r"NPU_CACHE_HOME.*cannot be used.*Set NPU_CACHE_HOME") as caught:
        Cache("test").entry("k", write("x"))
    assert "\n" not in str(caught.value)


FILL = """
    import pathlib, sys, time
    from iron_core.cache.store import Cache
    def build(folder):
        (folder / "who.txt").write_text(sys.argv[1])
        print("building", flush=True)
        time.sleep(float(sys.argv[2]))
        while len(sys.argv) > 3 and not pathlib.Path(sys.argv[3]).exists():
            time.sleep(0.01)
        (folder / "done.txt").write_text("done")
    entry = Cache("test").entry("k", build)
    print((entry / "who.txt").read_text(), (entry / "done.txt").read_text())
"""


def test_two_processes_filling_at_once_share_one_whole_entry(cache):
    """One builds, the other waits for it, and both see the same files."""
    racers = [process(FILL, name, 0.3) for name in ("first", "second")]
    outputs = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert outputs[0][-2:] == outputs[1][-2:]
    assert sum(words.count("building") for words in outputs) == 1
    assert leftovers(cache) == []


def test_a_process_killed_while_filling_leaves_nothing_broken(cache):
    """After kill -9 the key is empty, the next asker builds it, and the remains are swept away."""
    victim = process(FILL, "victim", 60)
    assert victim.stdout.readline().strip() == "building"
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait(timeout=60)
    victim.stdout.close()
    assert cache.get("k") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entry = cache.entry("k", write("good"))
    assert sorted(path.name for path in entry.iterdir()) == ["data.txt", "entry.json"]
    assert leftovers(cache) == []


def test_another_keys_filler_sweeps_what_a_killed_one_left(cache):
    """Nothing is left for good even if the killed process's key is never asked for again."""
    victim = process(FILL, "victim", 60)
    assert victim.stdout.readline().strip() == "building"
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait(timeout=60)
    victim.stdout.close()
    assert leftovers(cache)
    cache.entry("other", write("x"))
    assert leftovers(cache) == []


def test_what_a_killed_remover_left_is_swept(cache):
    """Nobody has a lock then: what was being taken away belongs to no one."""
    cache.entry("k", write("x"))
    (cache.folder / ".gone.tmp-0123").mkdir()
    (cache.folder / ".gone.tmp-0123" / "data.txt").write_text("x")
    (cache.folder / ".file.tmp-4567").write_text("x")
    cache.entry("other", write("x"))
    assert leftovers(cache) == []


def test_a_filling_process_is_not_swept(cache, tmp_path):
    """Another key's filler does not wait for a living process, and leaves its folder alone."""
    gate = tmp_path / "gate"
    filler = process(FILL, "slow", 0, gate)
    assert filler.stdout.readline().strip() == "building"
    cache.entry("other", write("x"))  # the process still waits at the gate, so this would hang if it waited for it
    gate.touch()
    assert filler.communicate(timeout=60)[0].split() == ["slow", "done"]
    assert filler.returncode == 0


def test_odd_keys_are_digested(cache):
    """A key is a name, not a path: nothing is written outside the backend's folder."""
    assert cache.entry("../../etc", write("x")).parent == cache.folder
