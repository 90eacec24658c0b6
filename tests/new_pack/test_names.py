"""`iron new-pack NAME`: which names a pack may have, and what things in it are called."""

from __future__ import annotations

import pytest

from iron_core.cli.new_pack import write
from iron_core.cli.new_pack.name import checked
from iron_core.errors import UsageError
from iron_core.plugins.record import OWN

LETTERS = "lower-case letters, digits and single hyphens"
REFUSED = {
    "": LETTERS,
    "Acme": "such as acme.",
    "acme_ops": "such as acme-ops.",
    "acme--ops": "such as acme-ops.",
    "-acme": LETTERS,
    "3d-ops": LETTERS,
    "acme.ops": "such as acme-ops.",
    "../acme": LETTERS,
    "acme ops": LETTERS,
    "acmé": LETTERS,
    "acme\n": LETTERS,
    "a" * 41: "40 at most",
    "iron": "one of Iron's own",
    **dict.fromkeys(sorted(OWN), "one of Iron's own"),
    "class": "class is a word",
    "json": "json is a word or a module",
    "new": "new is a word",
    "class-ops": "class is a word",
    "iron-int": "int is a word",
    "numpy": "is installed here",
}


@pytest.mark.parametrize(("name", "why"), REFUSED.items(), ids=lambda word: repr(word))
def test_a_bad_name_is_refused_in_a_line_and_nothing_is_written(name, why, tmp_path, monkeypatch):
    """With what would be legal."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        write(name, ["operator"])
    said = str(caught.value)
    assert why in said and "Legal: " in said and "\n" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "package", "prefix", "dashed", "camel"),
    [
        ("acme-ops", "acme_ops", "acme", "acme", "Acme"),
        ("iron-acme", "iron_acme", "acme", "acme", "Acme"),
        ("iron-big-blue-backend", "iron_big_blue_backend", "big_blue", "big-blue", "BigBlue"),
        ("ops", "ops", "ops", "ops", "Ops"),
        ("iron-3d", "iron_3d", "3d", "3d", "Pack3d"),
    ],
)
def test_what_is_in_a_pack_is_called_after_it(name, package, prefix, dashed, camel):
    """Without "iron" in front, and without the word for what kind of pack it is."""
    made = checked(name)
    assert (made.package, made.prefix, made.dashed, made.camel) == (package, prefix, dashed, camel)


def test_a_name_of_something_that_is_installed_is_refused(tmp_path, monkeypatch):
    """A backend `host` would be in the shadow of Iron's."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"backends has host of iron-host .* here\. Legal: another name\."):
        write("host-ops", ["operator", "backend"])
    assert not list(tmp_path.iterdir())


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    """A file too, and a link that leads nowhere; each is left as it was. An empty one is filled."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine.txt").write_text("mine")
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("mine")
    link.symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    for folder in (there, file, link):
        with pytest.raises(UsageError, match=r"is there and not empty\. Legal: a new or an empty folder, by --into FOLDER\."):
            write("acme-pack", ["reader"], folder)
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    folder, paths = write("acme-pack", ["reader"], tmp_path / "empty")
    assert folder == tmp_path / "empty" and "pyproject.toml" in paths
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/pack: (File exists|Not a directory)\."):
        write("acme-pack", ["reader"], tmp_path / "file" / "pack")
