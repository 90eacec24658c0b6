"""Keys: what a file was is known by more than its path, size and time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from iron_core.cache.keys import FileIdentity, digest, known_sources, sources_digest

SIZE = 1 << 20


@pytest.fixture
def weights(tmp_path):
    """A file of random bytes with a time of long ago, and another of the same size and time."""
    one, two = tmp_path / "one.bin", tmp_path / "two.bin"
    for path in (one, two):
        path.write_bytes(os.urandom(SIZE))
        os.utime(path, (1, 1))
    return one, two


def identity(path):
    with path.open("rb") as file:
        return FileIdentity.of(str(path), file.fileno())


def edit(path, at):
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


CHANGES = {
    "cp -p": lambda one, two: shutil.copy2(two, one),
    "mv": lambda one, two: two.rename(one),
    "a hard link": lambda one, two: (one.unlink(), os.link(two, one)),
    "a link": lambda one, two: (one.unlink(), one.symlink_to(two)),
    "touch": lambda one, two: one.touch(),
    "an edit in place": lambda one, two: edit(one, SIZE // 2),
    "an edit in place, the time put back": lambda one, two: (edit(one, 12345), os.utime(one, (1, 1))),
    "a copy of itself": lambda one, two: (shutil.copy2(one, two), two.rename(one)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_another(weights, change):
    """Whatever way it came there, with the size and time of the one before."""
    one, two = weights
    before = identity(one)
    assert identity(one) == before
    CHANGES[change](one, two)
    assert identity(one) != before


def made_up(stat):
    """What an image says of its files: inodes by their order, times of whole seconds."""

    def said(file, **how):
        return SimpleNamespace(st_ino=7, st_size=stat(file, **how).st_size, st_mtime_ns=10**9, st_ctime_ns=10**9)

    return said


def test_content_decides_where_an_image_makes_up_the_times(weights, monkeypatch):
    """Two images may have the same inode and times for two files: samples tell them apart, more of them than else."""
    one, two = weights
    monkeypatch.setattr(os, "fstat", made_up(os.fstat))
    before = identity(one)
    two.replace(one)
    after = identity(one)
    assert (after.inode, after.size, after.mtime_ns, after.ctime_ns) == (before.inode, before.size, before.mtime_ns, before.ctime_ns)
    assert after.samples != before.samples


@pytest.mark.parametrize("size", [1, 4096, 1 << 16, (1 << 16) + 1, (1 << 16) + 64 * 4096])
def test_all_of_a_small_file_is_looked_at(tmp_path, size):
    """Up to 320 kB the samples are the file: each byte counts."""
    path = tmp_path / "small.bin"
    path.write_bytes(os.urandom(size))
    before = identity(path).samples
    for at in {0, size // 2, size - 1}:
        edit(path, at)
        assert identity(path).samples != before
        edit(path, at)
    assert identity(path).samples == before


def test_samples_are_spread_to_the_end(tmp_path):
    """The first bytes, the last, and some every hundredth of the file."""
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    before = identity(path).samples
    seen = 0
    for at in [0, (64 << 20) - 1]:
        edit(path, at)
        assert identity(path).samples != before
        edit(path, at)
    with path.open("r+b", 0) as file:
        for part in range(50):
            file.seek((part * 64 << 20) // 50)
            file.write(b"\1" * ((64 << 20) // 50))
            seen += identity(path).samples != before
            file.seek((part * 64 << 20) // 50)
            file.write(bytes((64 << 20) // 50))
    assert seen == 50


def test_a_change_within_a_tick_of_the_clock_is_seen(tmp_path):
    """Times are read from a clock that stands still for some milliseconds: an identity waits until it has moved on."""
    path = tmp_path / "new.bin"
    path.write_bytes(bytes(SIZE))
    before = identity(path)
    at = next(at for at in range(SIZE // 2, SIZE) if not sampled(path, at))
    edit(path, at)
    after = identity(path)
    assert after.samples == before.samples and after != before


def sampled(path, at):
    before = identity(path).samples
    edit(path, at)
    after = identity(path).samples
    edit(path, at)
    return before != after


def test_writing_to_a_file_is_noticed_and_replacing_it_is_not(weights):
    """`written_to` is about the bytes that were opened: what is put in their place leaves them as they are."""
    one, two = weights
    found = identity(one)
    assert not found.written_to()
    edit(one, 3)
    os.utime(one, (1, 1))
    assert found.written_to()
    found = identity(one)
    two.rename(one)
    assert not found.written_to()
    one.unlink()
    assert not found.written_to()


def test_digests_tell_parts_apart():
    """Moving a character from one part to the next changes the digest."""
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(b"ab", 1) == digest(b"ab", 1)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose import fails."""
    folder = tmp_path / "some_model"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "model.py").write_text("a = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_sources_digest_imports_nothing_and_follows_edits(package):
    """An edited source file gives another digest, also with its size and time; the module is not imported."""
    before = sources_digest("some_model")
    assert sources_digest("some_model") == before
    (package / "model.py").write_text("a = 22")
    edited = sources_digest("some_model")
    assert edited != before
    os.utime(package / "model.py", (1, 1))
    dated = sources_digest("some_model")
    (package / "model.py").write_text("a = 23")
    os.utime(package / "model.py", (1, 1))
    assert len({before, edited, dated, sources_digest("some_model")}) == 4
    assert "some_model" not in sys.modules


def test_sources_in_folders_of_a_package_are_its_sources(package):
    """At any depth: an edit there, or a file more, gives another digest."""
    deep = package / "text" / "words"
    deep.mkdir(parents=True)
    for folder in (deep, deep.parent):
        (folder / "__init__.py").write_text("")
    (deep / "spelling.py").write_text("a = 1")
    seen = [sources_digest("some_model")]
    (deep / "spelling.py").write_text("a = 22")
    seen.append(sources_digest("some_model"))
    (deep / "letters.py").write_text("")
    seen.append(sources_digest("some_model"))
    assert len(set(seen)) == 3


def test_what_has_no_source_file_is_not_known(package):
    """What is not installed, or built into the interpreter."""
    for name in ("no_such_model", "builtins"):
        assert known_sources("some_model", name) is None
    assert known_sources("some_model") == sources_digest("some_model")


def test_sources_of_an_image_are_known_by_their_content(package, monkeypatch):
    """Where inodes and times are made up."""
    monkeypatch.setattr(os, "stat", made_up(os.stat))
    before = sources_digest("some_model")
    (package / "model.py").write_text("a = 2")
    assert sources_digest("some_model") != before


@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync here")
def test_rsync_gives_another_file(weights):
    """`rsync -a` keeps size and time."""
    one, two = weights
    before = identity(one)
    subprocess.run(["rsync", "-a", "--ignore-times", str(two), str(one)], check=True)
    assert identity(one) != before
