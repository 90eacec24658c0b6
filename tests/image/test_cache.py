"""The cache: an entry is whole or not there, however many processes fill it and however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import warnings

import pytest

from iron_core.errors import CacheError
from iron_core.image.cache import Cache, CacheWarning, digest, home, sources_digest


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


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove", "manifest", "no manifest"])
def test_a_corrupt_entry_is_rebuilt_with_a_warning(cache, harm):
    """A changed, cut or missing file, or a broken manifest, is noticed and built again."""
    entry = cache.entry("k", write("good"))
    data, manifest = entry / "data.txt", entry / "entry.json"
    {
        "flip": lambda: data.write_text("baad"),
        "truncate": lambda: data.write_text("go"),
        "remove": data.unlink,
        "manifest": lambda: manifest.write_text("{"),
        "no manifest": manifest.unlink,
    }[harm]()
    assert cache.get("k") is None
    with pytest.warns(CacheWarning, match="building it again"):
        again = cache.entry("k", write("good"))
    assert (again / "data.txt").read_text() == "good"
    assert leftovers(cache) == []


def test_a_cache_below_a_regular_file_is_one_clear_error(tmp_path, monkeypatch):
    """Nobody can make a folder there, root neither: one line naming the variable, the folder and what to do."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match=r"NPU_CACHE_HOME.*cannot be used.*Set NPU_CACHE_HOME") as caught:
        Cache("test").entry("k", write("x"))
    assert "\n" not in str(caught.value)


FILL = """
    import pathlib, sys, time
    from iron_core.image.cache import Cache
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


def test_digests_tell_parts_apart():
    """Moving a character from one part to the next changes the digest."""
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(b"ab", 1) == digest(b"ab", 1)


def test_a_sources_digest_imports_nothing_and_follows_edits(tmp_path, monkeypatch):
    """An edited source file gives another digest; the module is not imported."""
    package = tmp_path / "some_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "model.py").write_text("a = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = sources_digest("some_model")
    (package / "model.py").write_text("a = 22")
    assert sources_digest("some_model") != before
    assert "some_model" not in sys.modules
