"""`iron cache list|clean|path`, and what `iron doctor` says of the cache."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iron_core.cache.entry import About
from iron_core.cache.store import Cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with three entries of 1000 bytes, used one, two and three days ago."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("IRON_CACHE_LIMIT", raising=False)
    for days, (backend, key) in enumerate((("host", "new"), ("tokenizers", "middle"), ("host", "old")), start=1):
        cache = Cache(backend)
        cache.keep(key, "data.bin", bytes(1000), about=About("kernel", f"what {key} is of\x1b[31m"))
        os.utime(cache.path(key), (time.time() - 86400 * days,) * 2)
    return tmp_path


def keys(folder):
    return sorted(path.name for path in folder.glob("iron/*/*") if not path.name.startswith("."))


def test_the_list_says_what_there_is(folder, iron):
    """The one used last first, as a table or as data; nothing of an entry reaches the terminal as it is."""
    status, out, err = iron("cache", "list")
    assert (status, err) == (0, "") and "\x1b" not in out
    head, *rows, last = out.splitlines()
    assert head.split()[:3] == ["backend", "kind", "size"] and [row.split()[-1] for row in rows] == ["new", "middle", "old"]
    assert rows[1].startswith("tokenizers  kernel  1.") and "what middle is of\\x1b[31m" in rows[1]
    assert last.startswith("3 entries, 3.") and last.endswith(f"in {folder}/iron")
    data = json.loads(iron("cache", "list", "--json")[1])
    assert [one["key"] for one in data] == ["new", "middle", "old"]
    assert data[0] | {"bytes": 0, "last_used": ""} == {
        "backend": "host", "kind": "kernel", "of": "what new is of\x1b[31m", "key": "new", "bytes": 0, "last_used": "",
        "in_use": False, "path": str(folder / "iron" / "host" / "new"),
    }  # fmt: skip
    assert 1000 < data[0]["bytes"] < 2000


def test_a_cache_that_is_not_there_is_empty(iron, monkeypatch, tmp_path):
    """Nothing is made by looking."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "none"))
    assert iron("cache", "list") == (0, f"backend  kind  size  last used    of  key\n0 entries, 0 B, in {tmp_path}/none/iron\n", "")
    assert json.loads(iron("cache", "list", "--json")[1]) == []
    assert iron("cache", "clean") == (0, "removed 0 entries, 0 B; 0 B left\n", "")
    assert iron("cache", "path") == (0, f"{tmp_path}/none/iron\n", "")
    assert list(tmp_path.iterdir()) == []


def test_the_path_is_where_entries_are(folder, iron):
    """For scripts."""
    assert iron("cache", "path") == (0, f"{folder}/iron\n", "")
    assert json.loads(iron("cache", "path", "--json")[1]) == {"path": f"{folder}/iron"}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], []),
        (["--older-than", "36h"], ["new"]),
        (["--older-than", "1w"], ["middle", "new", "old"]),
        (["--limit", "3k"], ["middle", "new"]),
        (["--limit", "1500"], ["new"]),
        (["--limit", "0"], []),
        (["--limit", "1G"], ["middle", "new", "old"]),
        (["--limit", "3k", "--older-than", "36h"], ["new"]),
    ],
)
def test_cleaning_removes_what_was_asked_for(folder, iron, options, left):
    """All, what was not used for a time, or what was used least recently until a size is left."""
    status, out, err = iron("cache", "clean", *options)
    assert (status, err) == (0, "") and out.startswith(f"removed {3 - len(left)} entr")
    assert keys(folder) == left


def test_cleaning_says_what_it_did(folder, iron):
    """As data."""
    facts = json.loads(iron("cache", "clean", "--older-than", "36h", "--json")[1])
    assert [one["key"] for one in facts["removed"]] == ["old", "middle"] and facts["in_use"] == []
    assert facts["bytes_left"] == json.loads(iron("cache", "list", "--json")[1])[0]["bytes"]


def test_cleaning_takes_odd_things_away(folder, iron):
    """A folder of somebody's, and what a killed process left; another process's unfinished entry stays."""
    (folder / "iron" / "host" / "zig" / "local").mkdir(parents=True)
    (folder / "iron" / "host" / ".gone.tmp-1").mkdir()
    (folder / "iron" / "host" / ".gone.lock").touch()
    code = "import sys; from iron_core.cache.store import Cache\n"
    code += "Cache('host').entry('busy', lambda f: (print('x', flush=True), sys.stdin.read()))"
    builder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert builder.stdout.readline() == "x\n"
    assert iron("cache", "clean")[0] == 0
    assert sorted(path.name.partition("-")[0] for path in folder.glob("iron/host/*")) == [".busy.lock", ".busy.tmp"]
    builder.communicate("")
    assert builder.returncode == 0 and keys(folder) == ["busy"]


def test_cleaning_leaves_what_is_no_entry(folder, iron):
    """A cache home may have a folder `iron` of another kind: a checkout of Iron, say."""
    for name in ("iron/iron_core/src", "iron/docs/pages", "iron/host/notes"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("precious")
    assert "precious" not in iron("cache", "list")[1] and "notes" not in iron("cache", "list")[1]
    assert iron("cache", "clean")[1].startswith("removed 3 entries")
    assert sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("file")) == [
        "iron/docs/pages",
        "iron/host/notes",
        "iron/iron_core/src",
    ]


def test_what_is_in_use_stays(folder, iron):
    """And is said."""
    code = "import sys; from iron_core.cache.store import Cache; Cache('host').get('old'); print('x', flush=True); sys.stdin.read()"
    user = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert user.stdout.readline() == "x\n"
    assert "in use" in next(row for row in iron("cache", "list")[1].splitlines() if row.endswith("old"))
    assert iron("cache", "clean")[1].endswith("left, 1 entry of it in use\n") and keys(folder) == ["old"]
    user.communicate("")
    assert iron("cache", "clean")[1].startswith("removed 1 entry") and keys(folder) == []


def test_a_cache_that_cannot_be_written_cannot_be_cleaned(folder, iron, monkeypatch):
    """Which is no "in use"."""

    def refuse(self, to):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    monkeypatch.setattr(Path, "rename", refuse)
    status, out, err = iron("cache", "clean")
    assert (status, out) == (2, "") and "mounted read-only" in err and err.count("\n") == 1
    assert len(keys(folder)) == 3


@pytest.mark.parametrize("options", [["--older-than", "yesterday"], ["--older-than", "-1d"], ["--limit", "little"], ["--limit", "-1"]])
def test_a_wrong_age_or_size_is_one_line(folder, iron, options):
    """It says what is legal, and removes nothing."""
    status, out, err = iron("cache", "clean", *options)
    assert (status, out) == (2, "") and err.count("\n") == 1 and "legal: " in err
    assert len(keys(folder)) == 3


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("NPU_CACHE_HOME", "~nosuch-user", "there is no such user"),
        ("NPU_CACHE_HOME", "/dev/null/x", "/dev/null is no folder"),
        ("IRON_CACHE_LIMIT", "much", "legal: bytes"),
    ],
)
def test_doctor_names_what_is_wrong_with_the_cache(iron, monkeypatch, variable, value, said):
    """In a sentence each, with what to set."""
    monkeypatch.setenv(variable, value)
    facts = json.loads(iron("doctor", "--json")[1])
    assert [variable in problem and said in problem for problem in facts["problems"]] == [True]
    assert said in facts["cache"]["state"]
    assert "problems below" in iron("doctor")[1] and said in iron("doctor")[1]


def test_doctor_prints_no_control_characters(iron, monkeypatch, tmp_path):
    """Of variables as of folders."""
    monkeypatch.setenv("NPU_CACHE_HOME", f"{tmp_path}/\x1b[31m\n")
    assert "\x1b" not in iron("doctor")[1] and "\\x1b[31m\\n (writable)" in iron("doctor")[1]


def test_doctor_works_without_a_home(iron, monkeypatch):
    """The folder is not known then."""
    monkeypatch.delenv("NPU_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    facts = json.loads(iron("doctor", "--json")[1])
    assert facts["cache"]["path"] is None and any("HOME is not set" in problem for problem in facts["problems"])
    assert iron("cache", "path")[0] == 2
