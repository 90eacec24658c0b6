"""Files that people ask for are written whole or not at all."""

from __future__ import annotations

import os
import resource
import stat
import threading
from pathlib import Path

import pytest

from iron_core.files import writable, write_whole


def test_a_text_is_written_as_utf_8(tmp_path: Path) -> None:
    """With the mode any new file has; what is no text is an escape."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", "grüße €\udcff\n")
    finally:
        os.umask(before)
    assert (tmp_path / "new").read_bytes() == "grüße €".encode() + b"\\udcff\n"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_what_is_there_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    """A link still leads to the file, which has the new text and the old mode."""
    (tmp_path / "real").write_text("old", encoding="utf-8")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text(encoding="utf-8") == "new"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o600 and len(os.listdir(tmp_path)) == 2


def test_a_write_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    """Here the system takes 100 bytes of a file at most, as a full disk does; nothing is left beside it."""
    (tmp_path / "talk").write_text("precious", encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(tmp_path / "talk", "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "talk").read_text(encoding="utf-8") == "precious" and os.listdir(tmp_path) == ["talk"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """It is not put out of its place by a file."""
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_whole(tmp_path / "pipe", "text")
    reader.join(60)
    assert got == [b"text"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    """Though its folder would allow it."""
    (tmp_path / "kept").write_text("old", encoding="utf-8")
    (tmp_path / "kept").chmod(0o400)
    with pytest.raises(PermissionError):
        write_whole(tmp_path / "kept", "new")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_can_be_none_is_an_oserror(name: str) -> None:
    """As any other place that cannot be written."""
    with pytest.raises(OSError, match="Invalid argument"):
        write_whole(name, "text")


@pytest.mark.parametrize("name", ["", "folder", "nowhere/file", "file/file", "file", "folder/new"])
def test_what_cannot_be_written_is_known_before(tmp_path: Path, name: str) -> None:
    """`writable` says what `write_whole` would, and writes nothing."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old", encoding="utf-8")
    errors = []
    for write in (writable, lambda path: write_whole(path, "new")):
        try:
            write(tmp_path / name)
            errors.append(None)
        except OSError as error:
            errors.append(error.errno)
        if write is writable:
            assert (tmp_path / "file").read_text(encoding="utf-8") == "old" and not os.listdir(tmp_path / "folder")
    assert errors[0] == errors[1] and (errors[0] is None) == (name in ("file", "folder/new"))
