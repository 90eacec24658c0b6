"""The folder of the cache: which it is, whose it is, and what is said of one that cannot be used."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from iron_core.cache.home import USUAL_LIMIT, home, limit_of, stranger, troubles
from iron_core.cache.store import Cache, CacheWarning, optional
from iron_core.errors import CacheError, CacheHomeError, UsageError


def write(folder):
    (folder / "data.txt").write_text("data")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A cache folder that is not there yet."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("given", ["relative", "-dash", "--help", "a b", "line\nbreak", "$LIB", "@file", "%s'\"", "b\udcffytes"])
def test_any_name_of_a_folder_will_do(tmp_path, monkeypatch, given):
    """A name that goes out from the working folder, looks like an option, or is no text: the path is absolute."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NPU_CACHE_HOME", given)
    assert home() == tmp_path / given
    assert (Cache("test").entry("k", write) / "data.txt").read_text() == "data"
    assert troubles() == []


def test_an_empty_name_is_none(monkeypatch, tmp_path):
    """As if it was not set."""
    monkeypatch.setenv("NPU_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".npu" / "cache"


def link(to):
    return lambda path: path.symlink_to(to)


MISTAKES = {
    "a file": (Path.touch, "", "cache is no folder"),
    "below a file": (Path.touch, "below/it", "cache is no folder"),
    "a link to nowhere": (link("nowhere"), "", "cache is a link that leads nowhere"),
    "below a link to nowhere": (link("nowhere"), "below", "cache is a link that leads nowhere"),
    "a link to itself": (link("cache"), "", "Too many levels of symbolic links|leads nowhere"),
    "a long name": (lambda path: None, "x" * 300, "File name too long"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_name_that_can_be_no_folder_is_one_clear_error(place, monkeypatch, mistake):
    """Even of what a start can do without, for it is the user's own mistake; doctor says the same."""
    make, below, why = MISTAKES[mistake]
    make(place)
    monkeypatch.setenv("NPU_CACHE_HOME", str(place / below) if below else str(place))
    said = rf"NPU_CACHE_HOME: .*cannot be used \(.*({why})\). Set NPU_CACHE_HOME to a folder"
    with pytest.raises(CacheHomeError, match=said) as caught:
        Cache("test").entry("k", write)
    assert "\n" not in str(caught.value)
    with pytest.raises(CacheHomeError), optional():
        Cache("test").keep("k", "data.txt", b"data")
    if mistake != "a long name":
        (trouble,) = troubles()
        assert "cannot be used" in trouble


def test_a_user_that_does_not_exist_is_named(monkeypatch):
    """`~nosuch` has no home."""
    monkeypatch.setenv("NPU_CACHE_HOME", "~nosuch-user/cache")
    with pytest.raises(CacheHomeError, match=r"NPU_CACHE_HOME=~nosuch-user/cache: there is no such user"):
        home()
    assert len(troubles()) == 1


def test_a_home_that_nobody_knows_is_done_without(monkeypatch):
    """Without HOME and an entry of the user there is no default folder: said once, with what to set."""
    monkeypatch.delenv("NPU_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    with pytest.raises(CacheError, match=r"default cache folder is not known: HOME is not set.*Set NPU_CACHE_HOME") as caught:
        Cache("test")
    assert not isinstance(caught.value, CacheHomeError) and troubles() == [str(caught.value)]
    with pytest.warns(CacheWarning, match="default cache folder is not known.*nothing is kept"), optional():
        Cache("test").keep("k", "data.txt", b"data")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_is_done_without(place, monkeypatch, number):
    """Full, over quota, read-only, forbidden: an error that names the folder and why, a warning of what is optional."""

    def refuse(self, *_, **__):
        raise OSError(number, os.strerror(number), str(self))

    def build(folder):
        refuse(folder / "data.txt")

    with pytest.raises(CacheError, match=rf"NPU_CACHE_HOME: {place} cannot be used \(.*(full|too large|read-only|denied)"):
        Cache("test").entry("k", build)
    assert list(Cache("test").folder.iterdir()) == []
    monkeypatch.setattr(Path, "mkdir", refuse)
    shutil.rmtree(place)
    with pytest.raises(CacheError, match="Set NPU_CACHE_HOME") as caught:
        Cache("test").entry("k", write)
    assert not isinstance(caught.value, CacheHomeError)
    with pytest.warns(CacheWarning, match="nothing is kept"), optional():
        Cache("test").keep("k", "data.txt", b"data")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_disk_that_fails_without_a_name_is_the_caches(place, number):
    """A write that fails names no file; the error has the cache's folder all the same."""

    def build(folder):
        raise OSError(number, os.strerror(number))

    with pytest.raises(CacheError, match=f"NPU_CACHE_HOME: {place} cannot be used"):
        Cache("test").entry("k", build)


def test_folders_are_nobody_elses(place):
    """Whatever the umask, others may not write to the folders, the files and the entries that are made."""
    before = os.umask(0)
    try:
        entry = Cache("test").entry("k", write)
    finally:
        os.umask(before)
    for path in (place, place / "iron", entry.parent, entry, entry / "data.txt", entry / "entry.json"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0, path
    assert Cache("test").get("k") == entry


@pytest.mark.parametrize("where", ["", "iron", "iron/test"])
def test_a_folder_others_may_write_to_is_not_used(place, where):
    """Nothing is read from it, or written to it; doctor says so. Who sees it warned of what is optional."""
    cache = Cache("test")
    cache.entry("k", write)
    (place / where).chmod(0o777)
    for use in (
        lambda: cache.get("k"),
        lambda: cache.entry("k", write),
        lambda: cache.read("k", "data.txt"),
        lambda: cache.keep("j", "d", b""),
    ):
        with pytest.raises(CacheError, match="others may write to it"):
            use()
    assert len(troubles()) == 1 and "others may write to it" in troubles()[0]
    (place / where).chmod(0o755)
    assert cache.get("k") is not None and troubles() == []


def test_a_sticky_folder_is_used(place):
    """`/tmp` may be written to by all, and each one's own is safe there."""
    place.mkdir()
    place.chmod(0o1777)
    assert Cache("test").entry("k", write).is_dir() and troubles() == []


def test_who_may_change_a_file():
    """Its owner and root; a group of the owner's own; nobody else."""
    me = os.geteuid()

    def who(mode, uid=me, gid=me):
        return stranger(os.stat_result([mode, 1, 1, 1, uid, gid, 0, 0, 0, 0]))

    file, folder = stat.S_IFREG, stat.S_IFDIR
    assert who(file | 0o644) == who(folder | 0o755) == who(file | 0o644, uid=0) == ""
    assert who(file | 0o664) == who(folder | 0o1777) == ""
    assert who(file | 0o664, gid=me + 1) == f"group {me + 1} may write to it"
    assert who(folder | 0o775, gid=me + 1) == f"group {me + 1} may write to it"
    assert who(file | 0o666) == who(folder | 0o777) == "others may write to it"
    assert who(file | 0o600, uid=me + 1) == f"it belongs to user {me + 1}"


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another's files")


@root
@pytest.mark.parametrize("what", ["k", "k/data.txt", "k/entry.json"])
def test_an_entry_of_another_user_is_built_again(place, what):
    """It is not given out, whoever put it there."""
    cache = Cache("test")
    cache.entry("k", lambda folder: (folder / "data.txt").write_text("evil"))
    os.chown(cache.folder / what, 12345, 12345)
    assert cache.get("k") is None and cache.read("k", "data.txt") is None
    with pytest.warns(CacheWarning, match="belongs to user 12345; building it again"):
        assert (cache.entry("k", write) / "data.txt").read_text() == "data"


@root
@pytest.mark.parametrize("where", ["", "iron", "iron/test"])
def test_a_folder_of_another_user_is_not_used(place, where):
    """Its owner could change what is in it at any time."""
    Cache("test").entry("k", write)
    os.chown(place / where, 12345, 12345)
    with pytest.raises(CacheError, match="belongs to user 12345"):
        Cache("test").get("k")
    assert len(troubles()) == 1


def mounted(options):
    """Run the rest of a line with a file system mounted on ./mnt; None where that is not allowed."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} none mnt && exec "$@"', "-"]


@root
@pytest.mark.parametrize(("options", "said"), [("noexec", "mounted noexec"), ("ro", "mounted read-only"), ("size=16k", "disk is full")])
def test_doctor_knows_what_a_file_system_does_not_do(tmp_path, options, said):
    """Without writing to it."""
    (tmp_path / "mnt").mkdir()
    if shutil.which("unshare") is None or subprocess.run([*mounted(options), "true"], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    code = "from iron_core.cache.home import troubles; print(*troubles(), sep='\\n')"
    line = [*mounted(options), sys.executable, "-c", code]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"NPU_CACHE_HOME": "mnt"})
    assert done.stdout.count("\n") == 1 and said in done.stdout, done


@pytest.mark.parametrize(
    ("given", "size"),
    [("1000000", 10**6), ("20G", 20 * 10**9), ("1.5 T", 1_500_000_000_000), ("500mb", 500 * 10**6), ("7k", 7000), (" 3G ", 3 * 10**9)],
)
def test_the_limit_is_a_number_of_bytes(place, monkeypatch, given, size):
    """Bytes, or with a suffix of thousands."""
    monkeypatch.setenv("IRON_CACHE_LIMIT", given)
    assert limit_of(place) == size


def test_no_limit_is_0_and_the_usual_one_leaves_half_of_the_disk(place, monkeypatch):
    """0 for any number; without the variable 50 GB, or half of the file system."""
    monkeypatch.setenv("IRON_CACHE_LIMIT", "0")
    assert limit_of(place) is None
    monkeypatch.delenv("IRON_CACHE_LIMIT")
    place.mkdir()
    disk = os.statvfs(place)
    assert limit_of(place) == min(USUAL_LIMIT, disk.f_blocks * disk.f_frsize // 2)


@pytest.mark.parametrize("given", ["much", "-1", "20X", "1e9", "nan", "٣", "1" * 30, "G"])
def test_a_limit_that_is_none_is_refused(place, monkeypatch, given):
    """In one line, by whatever uses the cache and by doctor."""
    monkeypatch.setenv("IRON_CACHE_LIMIT", given)
    with pytest.raises(UsageError, match=r"IRON_CACHE_LIMIT=.*legal: bytes"):
        Cache("test")
    assert len(troubles()) == 1


def test_one_warning_however_much_is_done_without(place):
    """The same is not said twice in a process."""
    place.mkdir()
    place.chmod(0o777)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for key in "abc":
            for backend in ("test", "other"):
                with optional():
                    Cache(backend).keep(key, "data.txt", b"data")
    assert len(said) == 1
