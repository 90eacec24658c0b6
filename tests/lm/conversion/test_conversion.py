"""`iron checkpoints convert`: a folder is there whole, or under another name, or not at all."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from iron_core.cli import main
from iron_core.errors import CheckpointError, DeclarationError, PluginError, UnknownName, UsageError
from iron_core.plugins.record import LEVELS, Record
from iron_core.plugins.registry import Registry, registry
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.safetensors import SafetensorsFile
from iron_lm.conversion import conversion, unfinished
from iron_lm.conversion.conversion import Conversion
from iron_lm.conversion.output import Output, Piece, Weights

#: Pieces of the toy format, and the bytes of each.
PIECES, NBYTES = 5, 1 << 12


def made(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, NBYTES, np.uint8)


class Toy:
    """A format of five pieces. `at`: called with the number of a piece before its second half is made; `made`: those begun."""

    def __init__(self) -> None:
        self.at: Callable[[int], None] = lambda i: None
        self.made: list[int] = []

    def parts(self, i: int) -> Iterable[np.ndarray]:
        self.made.append(i)
        yield made(i)[: NBYTES // 2]
        self.at(i)
        yield made(i)[NBYTES // 2 :]

    def output(self, checkpoint: Checkpoint) -> Output:
        pieces = [Piece(f"piece {i}", NBYTES, lambda i=i: self.parts(i)) for i in range(PIECES)]  # type: ignore[misc]
        return Output({"config.json": b"{}"}, "model.toy", b"HEAD", pieces)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    """What `--format safetensors` writes meanwhile."""
    toy = Toy()
    monkeypatch.setattr(SafetensorsFile, "converted", classmethod(lambda cls, checkpoint: toy.output(checkpoint)), raising=False)
    return toy


@pytest.fixture
def convert(toy: Toy, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`iron checkpoints convert` of the tiny Llama to OUT: (status, standard output, standard error)."""

    def run(*options: str, source: Any = tiny.checkpoint.path, out: Any = tmp_path / "out", format: str = "safetensors") -> Any:
        status = main(["checkpoints", "convert", str(source), str(out), "--format", format, *options])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def whole(folder: Path) -> bool:
    """Is it all of the toy format, and nothing else?"""
    held = {path.name: path.read_bytes() for path in folder.iterdir()}
    return held == {"config.json": b"{}", "model.toy": b"HEAD" + b"".join(made(i).tobytes() for i in range(PIECES))}


def raising(error: BaseException, piece: int) -> Callable[[int], None]:
    def at(i: int) -> None:
        if i == piece:
            raise error

    return at


def test_a_folder_is_written_whole(convert: Any, tmp_path: Path) -> None:
    """The header, the pieces and the small files, and nothing beside them; what was done is said, and not a word in a pipe."""
    status, out, err = convert("--json")
    assert (status, err) == (0, "") and whole(tmp_path / "out") and os.listdir(tmp_path) == ["out"]
    facts = {"path": str(tmp_path / "out"), "format": "safetensors", "tensors": PIECES, "kept": 0, "bytes": 4 + PIECES * NBYTES + 2}
    assert json.loads(out) == facts
    status, out, err = convert(out=tmp_path / "other")
    assert (status, err) == (0, "") and out == f"{tmp_path / 'other'}: safetensors, 5 tensors, {facts['bytes']} bytes\n"


@pytest.mark.parametrize("piece", [1, 3, 4])
def test_it_goes_on_where_it_was_cut_short(convert: Any, toy: Toy, tmp_path: Path, piece: int) -> None:
    """Ctrl-C within a piece leaves OUT.partial and no OUT; the same line makes the pieces that are missing, and no others."""
    toy.at = raising(KeyboardInterrupt(), piece)
    status, out, err = convert()
    assert (status, out) == (130, "") and os.listdir(tmp_path) == ["out.partial"]
    assert f"out.partial has {piece} of 5 tensors; the same command goes on from there." in err
    toy.at, toy.made = lambda i: None, []
    assert json.loads(convert("--json")[1])["kept"] == piece
    assert whole(tmp_path / "out") and toy.made == list(range(piece, PIECES)) and os.listdir(tmp_path) == ["out"]


def test_nothing_is_left_where_nothing_was_done(convert: Any, toy: Toy, tmp_path: Path) -> None:
    """Ctrl-C within the first piece takes the folder away."""
    toy.at = raising(KeyboardInterrupt(), 0)
    assert convert()[0] == 130 and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "harm",
    ["a byte of piece 1", "cut short", "longer", "the journal's end", "no journal's line", "another header", "another small file"],
)
def test_what_is_there_is_verified(convert: Any, toy: Toy, tmp_path: Path, harm: str) -> None:
    """Pieces up to the first that is not as noted are kept, and what comes out is whole, whatever happened to the folder."""
    toy.at = raising(KeyboardInterrupt(), 3)
    convert()
    file, journal = tmp_path / "out.partial" / "model.toy", tmp_path / "out.partial" / ".journal"
    data, lines = bytearray(file.read_bytes()), journal.read_text().splitlines(keepends=True)
    kept = {"a byte of piece 1": 1, "cut short": 2, "longer": 3, "the journal's end": 0, "no journal's line": 2, "another small file": 3}
    if harm == "a byte of piece 1":
        data[4 + NBYTES] ^= 1
    elif harm == "cut short":
        del data[4 + 3 * NBYTES - 1 :]
    elif harm == "longer":
        data += bytes(7)
    elif harm == "the journal's end":
        lines[-1] = lines[-1][:9]
    elif harm == "no journal's line":
        del lines[-1]
    elif harm == "another header":
        data[0] ^= 1
    else:
        (tmp_path / "out.partial" / "generation_config.json").write_text("{}")
    file.write_bytes(data)
    journal.write_text("".join(lines))
    toy.at = lambda i: None
    assert json.loads(convert("--json")[1])["kept"] == kept.get(harm, 0) and whole(tmp_path / "out")


def test_another_source_is_not_gone_on_with(convert: Any, toy: Toy, tiny: Any, tmp_path: Path) -> None:
    """A file that was written to since, or another one, is begun anew, though its header is the same."""
    source = copytree(tiny.checkpoint.path, tmp_path / "source")
    toy.at = raising(KeyboardInterrupt(), 3)
    convert(source=source)
    os.utime(source / "model.safetensors")
    toy.at = lambda i: None
    assert json.loads(convert("--json", source=source)[1])["kept"] == 0 and whole(tmp_path / "out")


KILLED = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from tests.lm.conversion import test_conversion as t
toy = t.Toy()
toy.at = lambda i: i == 3 and (print("at 3", flush=True), time.sleep(60))
t.SafetensorsFile.converted = classmethod(lambda cls, checkpoint: toy.output(checkpoint))
sys.exit(t.main(["checkpoints", "convert", {source!r}, {out!r}, "--format", "safetensors"]))
"""


def test_of_several_files_none_is_kept_behind_one_that_differs(convert: Any, toy: Toy, tmp_path: Path, monkeypatch: Any) -> None:
    """Though the next one has a piece of the same name and bytes as the one that was damaged."""
    same, last = (Piece(name, NBYTES, lambda i=i: toy.parts(i)) for i, name in enumerate(("same", "last")))  # type: ignore[misc]
    both = Output({}, "a.toy", b"HEAD", [same], [Weights("b.toy", b"HEAD", [same, last])])
    monkeypatch.setattr(toy, "output", lambda checkpoint: both)
    toy.at = raising(KeyboardInterrupt(), 1)
    assert convert()[0] == 130
    file = tmp_path / "out.partial" / "a.toy"
    file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1]))
    toy.at = lambda i: None
    assert json.loads(convert("--json")[1])["kept"] == 0
    first, second = (made(i).tobytes() for i in range(2))
    held = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert held == {"a.toy": b"HEAD" + first, "b.toy": b"HEAD" + first + second}


def test_a_killed_process_loses_one_piece(convert: Any, toy: Toy, tiny: Any, tmp_path: Path) -> None:
    """Meanwhile another process is told so; after SIGKILL the pieces that were whole are kept."""
    code = KILLED.format(root=str(Path(__file__).parents[3]), source=str(tiny.checkpoint.path), out=str(tmp_path / "out"))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "at 3\n"
        status, _, err = convert()
        assert status == 2 and "out.partial: another process is writing it." in err
        process.kill()
    assert process.returncode == -signal.SIGKILL and os.listdir(tmp_path) == ["out.partial"]
    assert json.loads(convert("--json")[1])["kept"] == 3 and whole(tmp_path / "out")


@pytest.mark.parametrize("piece", [0, 2])
def test_a_full_disk_is_one_line(convert: Any, toy: Toy, tmp_path: Path, piece: int) -> None:
    """What cannot be written is said with what is there already, and no OUT is."""
    toy.at = raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), piece)
    status, out, err = convert()
    assert (status, out) == (2, "") and re.fullmatch(r"error: \S+out.partial: No space left on device\.[^\n]*\n", err)
    assert ("has 2 of 5 tensors" in err) == bool(piece) and os.listdir(tmp_path) == ["out.partial"] * bool(piece)


def test_too_little_room_is_said_before_anything_is_made(convert: Any, toy: Toy, tmp_path: Path, monkeypatch: Any) -> None:
    """Bytes needed and bytes free."""
    monkeypatch.setattr(unfinished.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 20000}))
    status, _, err = convert()
    assert status == 2 and "takes 20486 more bytes, and 20000 are free there" in err and not toy.made and os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_named(convert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only folder for OUT."""

    def refused(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "mkdir", refused)
    status, _, err = convert()
    assert (status, err) == (2, f"error: {tmp_path}/out.partial: Read-only file system.\n") and os.listdir(tmp_path) == []


def test_mistakes_are_one_line_each(convert: Any, tiny: Any, tmp_path: Path) -> None:
    """What is wrong, and what would be legal; nothing is written."""
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("")
    for says, changes in {
        r"nowhere: no such file or folder": {"source": tmp_path / "nowhere"},
        r"--format nonsense: no such kind of checkpoint. Legal: .*safetensors": {"format": "nonsense"},
        r"--format pytorch is only read. Legal: .*safetensors": {"format": "pytorch"},
        r"OUT=\S+there is there already; legal: a new name, or --force": {"out": tmp_path / "there"},
        r"OUT=\S+out: \S+gone is no folder": {"out": tmp_path / "gone" / "out"},
        r"File name too long\.": {"out": tmp_path / ("long" * 100)},
    }.items():
        status, out, err = convert(**changes)
        assert (status, out) == (2, "") and re.fullmatch(rf"error: [^\n]*{says}[^\n]*\n", err), err
        assert sorted(os.listdir(tmp_path)) == ["file", "there"]


def test_force_replaces_what_a_conversion_wrote(convert: Any, toy: Toy, tmp_path: Path) -> None:
    """The old folder stays until the new one is whole, and then nothing of it is left."""
    assert convert()[0] == 0
    (tmp_path / "out" / "tokenizer.json").write_text("old")
    toy.at = raising(KeyboardInterrupt(), 2)
    assert convert("--force")[0] == 130 and (tmp_path / "out" / "tokenizer.json").read_text() == "old"
    toy.at = lambda i: None
    assert convert("--force")[0] == 0 and whole(tmp_path / "out") and os.listdir(tmp_path) == ["out"]


def test_force_touches_nothing_else(convert: Any, tiny: Any, tmp_path: Path) -> None:
    """Not a folder with files of somebody's own, a link, a file, nor the folder that is converted."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.tex").write_text("")
    (tmp_path / "link").symlink_to("own")
    (tmp_path / "file").write_text("")
    source = copytree(tiny.checkpoint.path, tmp_path / "source")
    wrong = {"own": "holds thesis.tex, which no", "link": "is no folder", "file": "is no folder", "source": "holds what is converted"}
    for out, says in wrong.items():
        status, _, err = convert("--force", out=tmp_path / out, source=source)
        assert status == 2 and says in err, err
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "own", "source"]


def test_a_journal_that_was_left_behind_keeps_nobody_from_replacing(convert: Any, tmp_path: Path) -> None:
    """Of one that was killed when the folder had its name already."""
    assert convert()[0] == 0
    (tmp_path / "out" / ".journal").touch()
    assert convert("--force")[0] == 0 and whole(tmp_path / "out")


@pytest.mark.parametrize("own", ["a file", "a folder", "a link", "a pipe", "another journal"])
def test_what_has_the_partial_name_is_left_alone(convert: Any, tmp_path: Path, own: str) -> None:
    """A file or a folder called OUT.partial that no conversion left; and nothing is written through a link in one."""
    place, mine = tmp_path / "out.partial", tmp_path / "mine"
    mine.write_text("mine")
    if own == "a file":
        mine.rename(place)
        mine = place
    else:
        place.mkdir()
        (place / ".journal").touch()
    if own == "a folder":
        (place / "figures").mkdir()
    elif own == "a link":
        (place / "model.toy").symlink_to(mine)
    elif own == "a pipe":
        os.mkfifo(place / "model.toy")
    elif own == "another journal":
        (place / ".journal").unlink()
        (place / ".journal").symlink_to(mine)
    status, _, err = convert()
    assert status == 2 and "is in the way" in err and mine.read_text() == "mine" and err.count("\n") == 1


def test_progress_is_told_from_python(toy: Toy, tiny: Any, tmp_path: Path) -> None:
    """Tensors and per cent."""
    one = Conversion(tiny.checkpoint.path, tmp_path / "out", "safetensors")
    seen: list[str] = []
    toy.at = lambda i: seen.append(one.progress)
    assert one.progress == "0 of 5 tensors, 0 %" and one.left_over == ""
    one.run()
    assert seen[0] == "0 of 5 tensors, 9 %" and seen[-1] == "4 of 5 tensors, 89 %" and one.progress == "5 of 5 tensors, 99 %"
    assert one.left_over == ""


def test_a_writer_gives_an_output(toy: Toy, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else is the writer's mistake, and named so."""
    monkeypatch.setattr(SafetensorsFile, "converted", classmethod(lambda cls, checkpoint: None))
    with pytest.raises(PluginError, match=r"reader `safetensors` of iron-lm \S+: its converted\(\) gave None; legal: an iron_lm"):
        Conversion(tiny.checkpoint.path, tmp_path / "out", "safetensors")
    with pytest.raises(UsageError, match="--format gguf is only read"):
        Conversion(tiny.checkpoint.path, tmp_path / "out", "gguf")


def test_somebody_elses_writer_that_fails_is_named(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the file that it was given; what it refuses of that is said as it is."""

    class Acme(SafetensorsFile):
        refusal: Exception

        @classmethod
        def converted(cls, checkpoint: Any) -> Any:
            raise cls.refusal

    entry = SimpleNamespace(load=lambda: Acme)
    record = Record("checkpoints", LEVELS["checkpoints"], "acme", "acme:Acme", "iron-acme", "1.0", entry)
    mine = Registry([record, *(one for one in registry().records if one.group == "checkpoints")])
    monkeypatch.setattr(conversion, "registry", lambda: mine)
    for Acme.refusal, error, says in (
        (ZeroDivisionError("no"), PluginError, r"reader `acme` of iron-acme 1.0: its converted\(\) raised ZeroDivisionError: no"),
        (CheckpointError(f"{tiny.checkpoint.path}: too wide."), CheckpointError, "tiny_llama: too wide."),
    ):
        with pytest.raises(error, match=says):
            Conversion(tiny.checkpoint.path, tmp_path / "out", "acme")


def test_a_writer_whose_sources_are_not_known_writes_too(convert: Any, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of a package without a file, say; only, nothing is gone on with, for it may be another by then."""
    monkeypatch.setattr(SafetensorsFile, "__module__", "acme.writer")
    toy.at = raising(KeyboardInterrupt(), 2)
    assert convert()[0] == 130
    toy.at, toy.made = lambda i: None, []
    assert convert()[0] == 0 and whole(tmp_path / "out") and toy.made == list(range(PIECES))


def test_an_output_is_files_of_one_folder() -> None:
    """Nothing is written beside it, over its weights or over the notes of what is whole; and bytes are bytes."""
    piece = Piece("piece 0", NBYTES, lambda: [made(0)])
    for name in ("../evil", "/tmp/evil", "a/b", "", ".", "..", ".journal"):
        for files, weights in (({name: b""}, "model.toy"), ({}, name)):
            with pytest.raises(DeclarationError, match=r"a file called .*; legal: a name in the folder, which begins with no dot"):
                Output(files, weights, b"HEAD", [piece])
    wrong: dict[str, Any] = {
        "weights='a' is one of files= too": ({"a": b""}, "a", b"HEAD", [piece]),
        "header is 'HEAD' .*; legal: bytes": ({}, "a", "HEAD", [piece]),
        r"files\['b'\] is None; legal: bytes": ({"b": None}, "a", b"", [piece]),
        r"pieces\[1\] is 7 .*; legal: Piece": ({}, "a", b"", [piece, 7]),
        r"pieces\[1\] is 8 .*; legal: Piece": ({}, "a", b"", [piece], [Weights("b", b"", [8])]),  # type: ignore[list-item]
        r"more\[1\] is 'b' .*; legal: Weights": ({}, "a", b"", [piece], [Weights("b", b"", []), "b"]),
        r"more\[1\] is called 'b', as another file is": ({}, "a", b"", [], [Weights("b", b"", []), Weights("b", b"", [])]),
        r"more\[0\] is called 'c', as another file is": ({"c": b""}, "a", b"", [], [Weights("c", b"", [])]),
        r"a file called '\.b'": ({}, "a", b"", [], [Weights(".b", b"", [])]),
    }
    for says, parts in wrong.items():
        with pytest.raises(DeclarationError, match=says):
            Output(*parts)


@pytest.mark.parametrize(("part", "says"), [(b"0" * NBYTES, "b'0000.* .bytes."), (made(0).view(np.float32), "an array of float32")])
def test_a_piece_is_made_of_bytes(toy: Toy, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any, says: str) -> None:
    """As arrays of uint8, however they lie."""
    spread = np.repeat(made(1), 2)[::2]
    pieces = (Piece("piece 0", NBYTES, lambda: [spread]), Piece("piece 1", NBYTES, lambda: [part]))
    monkeypatch.setattr(toy, "output", lambda checkpoint: Output({}, "model.toy", b"HEAD", pieces))
    with pytest.raises(PluginError, match=rf"piece 1: its writer made {says}; legal: arrays of uint8"):
        Conversion(tiny.checkpoint.path, tmp_path / "out", "safetensors").run()
    assert (tmp_path / "out.partial" / "model.toy").read_bytes()[4:] == made(1).tobytes()


def test_a_piece_has_the_bytes_it_said(toy: Toy, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has more or fewer would shift every tensor behind it."""
    pieces = [Piece("piece 0", NBYTES, lambda: [made(0)]), Piece("piece 1", NBYTES, lambda: [made(1)[1:]])]
    monkeypatch.setattr(toy, "output", lambda checkpoint: Output({}, "model.toy", b"HEAD", pieces))
    with pytest.raises(PluginError, match=r"piece 1: its writer made 4095 bytes of it; legal: 4096"):
        Conversion(tiny.checkpoint.path, tmp_path / "out", "safetensors").run()
    assert os.listdir(tmp_path) == ["out.partial"]


def test_where_nothing_is_written_the_distribution_that_does_is_named(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers alone are installed."""
    monkeypatch.setattr(conversion, "_writes", lambda reader: False)
    with pytest.raises(UnknownName, match=r"--format q5nx: no such kind of checkpoint\. No installed distribution .* iron-q4nx has q4nx\."):
        Conversion(tiny.checkpoint.path, tmp_path / "out", "q5nx")
