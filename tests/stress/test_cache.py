"""Cold processes that are killed, and damage anywhere in the cache: the answer is the right one, or an error."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("answering.py")


class Answering:
    """`answering.py` over one model."""

    def __init__(self, model: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip

    def ask(self, cache: Path) -> None:
        """Let a child answer over this cache folder."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{cache}\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, object]:
        """What the child asked last has said."""
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline() or '{"died": "it was killed"}'))

    def kill(self) -> None:
        """kill -9, its child too."""
        os.killpg(self.process.pid, 9)
        self.process.wait()


@pytest.fixture(scope="module")
def answering(model: Path):
    program = Answering(model)
    yield program
    program.kill()


@pytest.fixture(scope="module")
def warm(answering: Answering, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    """A cache with everything in it, and the right answer."""
    cache = tmp_path_factory.mktemp("warm")
    answering.ask(cache)
    first = answering.answer()
    assert "ids" in first, first
    answering.ask(cache)
    assert answering.answer() == first
    return cache, first["ids"]


def test_cold_processes_killed_at_any_time_leave_the_others_right(
    model: Path, warm: tuple[Path, object], tmp_path: Path, chance: random.Random
) -> None:
    """Eight start on one empty cache, four are killed meanwhile: whoever answers is right, and so is the next, which finds all."""
    for attempt in range(2):
        cache = tmp_path / str(attempt)
        programs = [Answering(model) for _ in range(8)]
        for program in programs:
            program.ask(cache)
        for program in programs[:4]:
            time.sleep(chance.uniform(0, 2))
            program.kill()
        answers = [program.answer() for program in programs[4:]]
        after = Answering(model)
        after.ask(cache)
        answers.append(after.answer())
        for program in (*programs[4:], after):
            program.kill()
        assert [found.get("ids", found) for found in answers] == [warm[1]] * 5


def damage(file: Path, chance: random.Random) -> str:
    """Do something to a file that a disk, a crash or a stranger's tool might do; what it was."""
    kind = chance.choice(("flip", "zero page", "cut", "longer", "empty", "gone", "folder", "loop", "of another"))
    size = file.stat().st_size
    if kind in ("flip", "zero page") and size:
        at = chance.randrange(size)
        with open(file, "r+b") as out:
            out.seek(at if kind == "flip" else at // 4096 * 4096)
            if kind == "flip":
                was = out.read(1)
                out.seek(at)
                out.write(bytes([was[0] ^ 1 << chance.randrange(8)]))
            else:
                out.write(bytes(min(4096, size - at // 4096 * 4096)))
    elif kind == "cut":
        os.truncate(file, chance.randrange(size) if size else 0)
    elif kind == "longer":
        with open(file, "ab") as out:
            out.write(b"more")
    elif kind == "empty":
        os.truncate(file, 0)
    elif kind in ("gone", "folder", "loop"):
        file.unlink()
        if kind == "folder":
            file.mkdir()
        elif kind == "loop":
            file.symlink_to(file.name)
    else:
        others = [other for other in file.parent.parent.glob(f"*/{file.name}") if other != file and other.is_file()]
        if others:
            shutil.copyfile(chance.choice(others), file)
    return f"{kind}: {file.parent.name}/{file.name} of {size} bytes"


#: Files of the cache by kind. What damages a kernel costs a compiler run, so those have fewer turns.
TURNS = {"tiles.bin": 50, "tiles.sums": 20, "version.pickle": 50, "tokenizer.json": 40, "entry.json": 30, "kernel.so": 10}


def test_no_damage_to_the_cache_gives_a_wrong_answer(
    answering: Answering, warm: tuple[Path, object], tmp_path: Path, chance: random.Random
) -> None:
    """200 times something in the cache is damaged, of every kind of entry and in every way: the ids are always the right ones."""
    cache, right = warm
    turns = [name for name, count in TURNS.items() for _ in range(count)]
    chance.shuffle(turns)
    wrong = []
    for name in turns:
        # One folder to damage for all turns would heal and show less; a copy for each starts whole.
        copy = tmp_path / "copy"
        shutil.copytree(cache, copy, symlinks=True)
        kernels = name == "kernel.so" and chance.random() < 0.5
        found = copy.rglob("entry.json" if kernels else name)
        files = sorted(p for p in found if p.is_file() and (name == "kernel.so") == (p.parent / "kernel.so").exists())
        assert files, f"the cache has no {name} any more: say what its kinds of entries are now"
        done = damage(chance.choice(files), chance)
        answering.ask(copy)
        said = answering.answer()
        if said.get("ids") != right:
            wrong.append((done, said))
        shutil.rmtree(copy)
    assert not wrong
