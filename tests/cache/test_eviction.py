"""Room in the cache: what was used least recently goes first, nothing that is in use, and the limit holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

import pytest

from iron_core.cache import eviction, store
from iron_core.cache.entry import About
from iron_core.cache.store import Cache

PAGE = 10_000


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of at most three entries of 10 kB and their manifests, for a process that holds none yet: it holds so many at most."""
    monkeypatch.setattr(store, "_held", {})
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("IRON_CACHE_LIMIT", str(3 * PAGE + 2000))
    return Cache("test")


def put(cache, key):
    """An entry that no process holds."""
    cache.keep(key, "data.bin", bytes(PAGE), about=About("page", key))


def used(cache, key, seconds):
    """It was used so long after the epoch."""
    os.utime(cache.path(key), (seconds, seconds))


def there(cache):
    return sorted(one.key for one in eviction.stored(cache.root))


def test_the_least_recently_used_goes_first(cache):
    """Using is reading or getting, not building."""
    for seconds, key in enumerate("abc"):
        put(cache, key)
        used(cache, key, 1000 + seconds)
    assert cache.read("a", "data.bin") is not None
    put(cache, "d")
    assert there(cache) == ["a", "c", "d"]
    put(cache, "e")
    assert there(cache) == ["a", "d", "e"]


def test_all_backends_share_the_limit(cache):
    """The limit is the cache's, not a backend's."""
    other = Cache("other")
    for seconds, key in enumerate("abc"):
        put(other, key)
        used(other, key, 1000 + seconds)
    put(cache, "d")
    assert there(cache) == ["b", "c", "d"]


def test_what_was_just_built_stays(cache, monkeypatch):
    """Even if it alone is too large."""
    put(cache, "a")
    cache.keep("large", "data.bin", bytes(10 * PAGE))
    assert there(cache) == ["large"]


def test_without_a_limit_nothing_goes(cache, monkeypatch):
    """IRON_CACHE_LIMIT=0."""
    monkeypatch.setenv("IRON_CACHE_LIMIT", "0")
    unbounded = Cache("test")
    for key in "abcdefgh":
        put(unbounded, key)
    assert len(there(cache)) == 8


HOLD = """
import sys
from iron_core.cache.store import Cache
assert Cache("test").get("a") is not None
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def user(cache):
    """Another process that uses entry a."""
    put(cache, "a")
    used(cache, "a", 1)
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    used(cache, "a", 1)
    yield process
    process.kill()
    process.communicate()


def test_what_a_process_uses_stays_until_it_ends(cache, user):
    """However it ends: the system drops its lock."""
    for seconds, key in enumerate("bcdef"):
        put(cache, key)
        used(cache, key, 1000 + seconds)
    assert there(cache) == ["a", "e", "f"]
    (held,) = [one for one in eviction.stored(cache.root) if one.key == "a"]
    assert held.in_use and not eviction.evict(held.path)
    user.send_signal(signal.SIGKILL)
    user.wait(60)
    put(cache, "g")
    assert there(cache) == ["e", "f", "g"]


def test_an_entry_is_in_use_from_the_moment_it_is_there(cache, monkeypatch):
    """Another process that makes room just then leaves it to the one that built it."""
    seen, keep_below = [], eviction.keep_below

    def meanwhile(root, limit, added):
        seen.append(eviction.evict(added))
        keep_below(root, limit, added)

    monkeypatch.setattr(eviction, "keep_below", meanwhile)
    folder = cache.entry("a", lambda folder: (folder / "data.bin").write_bytes(b"a"))
    cache.keep("b", "data.bin", b"b")
    assert seen == [False, False] and (folder / "data.bin").read_bytes() == b"a"
    assert [one.in_use for one in eviction.stored(cache.root) if one.key == "b"] == [False]


def test_what_this_process_uses_stays(cache):
    """As with another one."""
    folder = cache.entry("a", lambda folder: (folder / "data.bin").write_bytes(bytes(PAGE)))
    used(cache, "a", 1)
    for key in "bcdef":
        put(cache, key)
    assert "a" in there(cache) and (folder / "data.bin").stat().st_size == PAGE


def test_damaged_and_foreign_things_go_too(cache):
    """An entry whose manifest is lost or cannot be read is one still; any other folder, or a file, is not."""
    lost = "0123456789abcdef" * 2
    for key in (lost, "odd"):
        put(cache, key)
        used(cache, key, 1)
    (cache.path("odd") / "entry.json").write_text("[")
    (cache.path(lost) / "entry.json").unlink()
    (cache.folder / "file").write_text("")
    (cache.folder / "docs").mkdir()
    (cache.folder / "docs" / "large.txt").write_bytes(bytes(9 * PAGE))
    (cache.folder / "link").symlink_to("nowhere")
    for key in "abc":
        put(cache, key)
    assert there(cache) == ["a", "b", "c"] and (cache.folder / "docs" / "large.txt").exists()


def test_a_manifest_of_any_size_is_listed_at_once(cache):
    """A damaged one may claim a terabyte, or be a link to anything: no more of it is read than a manifest has, and no link."""
    for key in "ab":
        put(cache, key)
    os.truncate(cache.path("a") / "entry.json", 1 << 40)
    place = cache.path("b") / "entry.json"
    place.rename(cache.root / "elsewhere.json")
    place.symlink_to(cache.root / "elsewhere.json")
    assert [one.about for one in eviction.stored(cache.root)] == [About(), About()]
    put(cache, "c")


def test_processes_that_add_at_once_leave_whole_entries_within_the_limit(cache):
    """Each makes room while others build and read."""
    code = """
import sys, random
from iron_core.cache.store import Cache
cache, drawn = Cache("test"), random.Random(sys.argv[1])
for _ in range(60):
    key = drawn.choice("abcdefgh")
    content = key.encode() * 10000
    found = cache.read(key, "data.bin")
    assert found in (None, content), found[:10]
    if found is None:
        cache.keep(key, "data.bin", content)
"""
    racers = [subprocess.Popen([sys.executable, "-W", "error", "-c", code, str(i)], stderr=subprocess.PIPE, text=True) for i in range(3)]
    errors = [racer.communicate(timeout=120)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0], errors
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put(cache, "z")
    assert len(there(cache)) <= 3
    assert [path.name for path in cache.folder.iterdir() if path.name.startswith(".")] == []
