"""`iron embed`: texts of a file as vectors in another, whole or not at all, and gone on with where it was killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import iron_lm
from iron_core.cli import main
from iron_core.errors import CheckpointError, UsageError
from iron_lm.vectors.layout import header
from iron_lm.vectors.texts import read_texts
from iron_lm.vectors.unfinished import UnfinishedVectors

WIDTH, ROWS = 3, 23
ORDER = np.random.default_rng(0).permutation(ROWS)
BATCHES = [ORDER[start : start + 4] for start in range(0, ROWS, 4)]
WHOLE = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)


def unfinished(out: Path, key: str = "key") -> UnfinishedVectors:
    return UnfinishedVectors(out, header(out, ROWS, WIDTH), WIDTH, BATCHES, key)


def killed_after(out: Path, batches: int) -> None:
    """Write so many batches in a process of its own, which kill -9 ends while it makes the next."""

    def write() -> None:
        left = [batches]

        def made(rows: np.ndarray) -> np.ndarray:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return WHOLE[rows]

        unfinished(out).write(made, False)

    child = multiprocessing.get_context("fork").Process(target=write)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("ending", (".npy", ".safetensors"))
@pytest.mark.parametrize("batches", (0, 1, 4))
def test_what_was_killed_is_gone_on_with(tmp_path: Path, ending: str, batches: int) -> None:
    """No row is missing, none is made again but those of the batch that was not whole."""
    out = tmp_path / f"vectors{ending}"
    killed_after(out, batches)
    assert not out.exists() and out.with_name(f"{out.name}.partial").exists()
    again, made = unfinished(out), []
    again.write(lambda rows: made.extend(rows) or WHOLE[rows], False)
    assert made == ORDER[4 * batches :].tolist() and again.kept == 4 * batches
    assert out.read_bytes() == header(out, ROWS, WIDTH) + WHOLE.tobytes() and [*tmp_path.iterdir()] == [out]


def test_notes_that_are_cut_and_bytes_that_are_not_as_noted_are_made_again(tmp_path: Path) -> None:
    """From the first that differs on."""
    out = tmp_path / "v.npy"
    killed_after(out, 4)
    journal = out.with_name("v.npy.partial.journal")
    journal.write_text(journal.read_text()[:-9])
    one = unfinished(out)
    with open(out.with_name("v.npy.partial"), "r+b") as file:
        file.seek(len(one.header) + 4 * WIDTH * int(BATCHES[1][2]))
        file.write(b"????")
    one.write(lambda rows: WHOLE[rows], False)
    assert one.kept == 4 and np.array_equal(np.load(out), WHOLE)


def test_what_is_of_another_making_is_not_mixed_in(tmp_path: Path) -> None:
    """It is refused, or goes where one says so; what fails names the file and what is there."""
    out = tmp_path / "v.npy"
    killed_after(out, 2)
    with pytest.raises(UsageError, match="is of other texts, or of another model; legal: another --out, or --force"):
        unfinished(out, "another").write(lambda rows: WHOLE[rows], False)
    full = unfinished(out)

    def no_room(rows: np.ndarray) -> np.ndarray:
        raise OSError(28, "No space left on device", str(out))

    with pytest.raises(CheckpointError, match=r"No space left on device. .*v.npy.partial has 8 of 23 vectors; the same command goes on"):
        full.write(no_room, False)
    another = unfinished(out, "another")
    another.write(lambda rows: WHOLE[rows], True)
    assert another.kept == 0 and np.array_equal(np.load(out), WHOLE)


def test_a_second_process_at_the_same_file_is_refused(tmp_path: Path) -> None:
    """While the first is at it."""
    out = tmp_path / "v.npy"

    def other(rows: np.ndarray) -> np.ndarray:
        with pytest.raises(UsageError, match="another process is writing it"):
            unfinished(out).write(lambda rows: WHOLE[rows], False)
        return WHOLE[rows]

    unfinished(out).write(other, False)
    assert np.array_equal(np.load(out), WHOLE)


def test_safetensors_is_what_its_library_reads(tmp_path: Path) -> None:
    """One tensor, `embeddings`."""
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    out = tmp_path / "v.safetensors"
    unfinished(out).write(lambda rows: WHOLE[rows], False)
    assert np.array_equal(library.load_file(out)["embeddings"], WHOLE)


@pytest.mark.parametrize(("lines", "says"), [
    (['"a"', "{", '"b"'], "line 2 is not JSON"), (['"a"', "", '"b"'], "line 2 is empty"),
    (["5"], "line 1 is neither a string nor an object"),
    (['{"txt": "a"}', '"b"', "[]"], "line 1 has no text under 'text' .*; line 3 is neither"), (['"a"', '""'], "line 2 has an empty text"),
    (["1", "2", "3", "4", "5"], "line 1 is .*; line 2 is .*; line 3 is .*; and 2 lines more"),
    ([r'"\ud800"'], "line 1 has a lone surrogate"),
    ([], "no lines; legal"),
])  # fmt: skip
def test_bad_lines_are_refused_by_number(tmp_path: Path, lines: list[str], says: str) -> None:
    """All of them before anything is made, a few in words."""
    file = tmp_path / "t.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UsageError, match=says):
        read_texts(file)


def test_a_line_is_a_string_or_has_a_text(tmp_path: Path) -> None:
    """Under `text`, or another field; the last line need not end, and a byte order mark may come first."""
    file = tmp_path / "t.jsonl"
    file.write_bytes('"猫"\r\n{"text": "b", "title": "c"}'.encode())
    assert read_texts(file) == ["猫", "b"]
    file.write_bytes(b"\xef\xbb\xbf" + b'"a"\n')  # a mark that editors put before UTF-8
    assert read_texts(file) == ["a"]
    file.write_text('{"text": "b", "title": "c"}')
    assert read_texts(file, "title") == ["c"]
    with pytest.raises(UsageError, match="No such file"):
        read_texts(tmp_path / "none")


# -- the command ----------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    status = main(["embed", *map(str, argv)])
    return status, *capsys.readouterr()


def test_row_for_line(talking: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever their lengths, of a model that continues text too; a file that is there stays unless told, and --json says what was done."""
    texts = [f"{'x' * (n * 7 % 31)} {n}" for n in range(70)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    line = (talking, tmp_path / "t.jsonl", "--out", tmp_path / "v.npy", "--max-seq-len", 256, "--dims", 8, "--backend", "host")
    status, out, _ = run(capsys, *line, "--json")
    found = json.loads(out)
    assert (status, found["vectors"], found["kept"], found["dims"], found["pooling"]) == (0, 70, 0, 8, "last")
    want = iron_lm.load(talking, max_seq_len=256, backend="host").embed(texts, dims=8)
    assert np.array_equal(np.load(tmp_path / "v.npy"), want)
    status, _, err = run(capsys, *line)
    assert status == 2 and "is there already; legal: a new name, or --force" in err
    assert run(capsys, *line, "--force")[0] == 0


@pytest.mark.parametrize(("says", "argv"), [
    ("legal: a name that ends in .npy or .safetensors", ["--out", "v.bin"]), ("is no folder", ["--out", "none/v.npy"]),
    ("dims=999; legal: 1 to 64", ["--out", "v.npy", "--dims", "999"]), ("line 2 has ", ["--out", "v.npy", "--max-seq-len", "16"]),
])  # fmt: skip
def test_a_mistake_is_one_line_and_status_2(
    talking: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, says: str, argv: list[str]
) -> None:
    """And nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text('"a"\n' + json.dumps("x" * 60) + "\n")
    status, out, err = run(capsys, talking, "t.jsonl", *argv)
    assert (status, out) == (2, "") and says in err and err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["t.jsonl"]
