"""A folder that is being written, under a name of its own until it is whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from iron_core.cache.keylock import temporary
from iron_core.errors import CheckpointError, PluginError, UsageError
from iron_core.plugins.foreign import kind_of
from iron_lm.conversion.output import Output, Piece, Weights

try:
    import fcntl
except ImportError:  # a platform without it: nobody is kept from writing the same folder twice
    fcntl = None  # type: ignore[assignment]

#: Notes of what is whole.
JOURNAL = ".journal"
#: Bytes read at once.
_READ = 1 << 20


class Unfinished:
    """`OUT.partial`, the folder that becomes OUT when it is whole.

    Its journal names what is being written (`key`) and then each piece that is, with the SHA-256 of its bytes. Who goes on with
    one reads what is there again and keeps the pieces up to the first that differs.
    """

    def __init__(self, out: Path, output: Output, key: str) -> None:
        self.out, self.output, self.key = out, output, key
        self.folder = out.with_name(f"{out.name}.partial")
        self.count = len(output.every)  # pieces there are
        self.done = 0  # pieces that are whole
        self.kept = 0  # of these, those of an earlier attempt

    def write(self, replace: bool, told: Callable[[int], None]) -> None:
        """Write what is not there yet, and put the folder in its place. told: called with the bytes that are there by now.

        replace: OUT may be there, and goes when the new one is whole. CheckpointError where something cannot be written: what is
        whole stays for the next attempt. UsageError where another process is at it, or something else has that name.
        """
        try:
            with self._locked():
                self._fill(told)
                self._rename(replace)
        except OSError as error:
            why = str(error.strerror or error).removesuffix(".")
            raise CheckpointError(f"{error.filename or self.folder}: {why}.{self.left_over}") from None

    @property
    def left_over(self) -> str:
        """What an attempt that ended left for the next, for people; nothing where it left nothing."""
        if not self.done or not self.folder.is_dir():
            return ""
        return f" {self.folder} has {self.done} of {self.count} tensors; the same command goes on from there."

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The folder made, or found, and this process's alone; the system drops the lock when the process ends."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.folder)
        if self.folder.is_symlink() or not self.folder.is_dir():
            raise self._not_ours()
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            if fcntl is not None:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UsageError(f"{self.folder}: another process is writing it.") from None
                except OSError:
                    pass  # a file system without locks
                if not os.path.exists(self.folder) or os.stat(self.folder).st_ino != os.fstat(descriptor).st_ino:
                    raise UsageError(f"{self.out}: another process has just written it.")
            yield
        finally:
            os.close(descriptor)

    def _not_ours(self) -> UsageError:
        return UsageError(f"{self.folder} is in the way, and no conversion that was cut short; legal: another OUT, or without it.")

    def _fill(self, told: Callable[[int], None]) -> None:
        lines = self._lines()
        self.kept = self.done = self._same(lines)
        nbytes = sum(piece.nbytes for piece in self.output.every[: self.done])
        try:
            with open(self.folder / JOURNAL, "w", encoding="utf-8") as journal:
                _note(journal, {"key": self.key}, *lines[: self.done])
                self._check_room(nbytes)
                told(nbytes)
                left = self.kept
                for one in self.output.containers:
                    there = min(left, len(one.pieces))
                    left -= there
                    nbytes = self._go_on(one, there, journal, nbytes, told)
        except BaseException:
            if not self.done:  # nothing that anybody could go on with
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        for name, data in self.output.files.items():
            with open(self.folder / name, "wb") as small:
                small.write(data)
                small.flush()
                os.fsync(small.fileno())

    def _lines(self) -> list[Any]:
        """What an earlier attempt at the same noted of each piece; nothing where it was at something else, or its notes are damaged.
        What it wrote besides is taken away. UsageError where what is there is no conversion's: all that those write are files."""
        there = list(self.folder.iterdir())
        plain = all(path.is_file() and not path.is_symlink() for path in there)
        if there and not (plain and (self.folder / JOURNAL).exists()):
            raise self._not_ours()
        (self.folder / JOURNAL).touch()
        for path in there:
            if path.name not in (JOURNAL, *self.output.names):
                path.unlink()
        try:
            lines = [json.loads(line) for line in (self.folder / JOURNAL).read_text(encoding="utf-8").splitlines()]
        except ValueError:
            return []
        return lines[1:] if lines[:1] == [{"key": self.key}] else []

    def _same(self, lines: list[Any]) -> int:
        """How many pieces the files of weights begin with that are as noted."""
        count = 0
        for one in self.output.containers:
            found = self._same_of(one, lines[count:])
            count += found
            if found < len(one.pieces):
                break
        return count

    def _same_of(self, one: Weights, lines: list[Any]) -> int:
        count = 0
        with open(self.folder / one.name, "a+b") as file:
            file.seek(0)
            if file.read(len(one.header)) == one.header:
                for piece, line in zip(one.pieces, lines, strict=False):
                    if line != _line(piece, _digest(file, piece.nbytes)):
                        break
                    count += 1
        return count

    def _go_on(self, one: Weights, there: int, journal: IO[str], nbytes: int, told: Callable[[int], None]) -> int:
        """Write the pieces of a file that are missing, behind those that are `there`; the bytes of all that are then."""
        with open(self.folder / one.name, "a+b") as file:
            file.truncate(len(one.header) + sum(piece.nbytes for piece in one.pieces[:there]) if there else 0)
            if not there:
                file.write(one.header)
            for piece in one.pieces[there:]:
                _note(journal, _line(piece, self._append(piece, file, nbytes, told)))
                self.done += 1
                nbytes += piece.nbytes
                told(nbytes)
            file.flush()
            os.fsync(file.fileno())
        return nbytes

    def _append(self, piece: Piece, file: IO[bytes], before: int, told: Callable[[int], None]) -> str:
        """Write a piece behind the `before` bytes of those that are there; the digest of its bytes."""
        hashed, count = hashlib.sha256(), 0
        for part in piece.parts():
            if not isinstance(part, np.ndarray) or part.dtype != np.uint8:
                kind = f"an array of {part.dtype}" if isinstance(part, np.ndarray) else kind_of(part)
                raise PluginError(f"{piece.name}: its writer made {kind}; legal: arrays of uint8.")
            data = np.ascontiguousarray(part).data.cast("B")
            file.write(data)
            hashed.update(data)
            count += len(data)
            told(before + count)
        if count != piece.nbytes:
            raise PluginError(f"{piece.name}: its writer made {count} bytes of it; legal: {piece.nbytes}, as it said.")
        file.flush()
        return hashed.hexdigest()

    def _check_room(self, nbytes: int) -> None:
        needed, free = self.output.nbytes - nbytes, shutil.disk_usage(self.folder).free
        if needed > free:
            raise CheckpointError(f"{self.out} takes {needed} more bytes, and {free} are free there.{self.left_over}")

    def _rename(self, replace: bool) -> None:
        if replace and self.out.is_dir():
            old = temporary(self.out)
            os.rename(self.out, old)
            try:
                os.rename(self.folder, self.out)
            except BaseException:
                os.rename(old, self.out)
                raise
            shutil.rmtree(old)
        else:
            os.rename(self.folder, self.out)
        os.unlink(self.out / JOURNAL)


def _line(piece: Piece, digest: str) -> dict[str, str]:
    return {"piece": piece.name, "sha256": digest}


def _note(journal: IO[str], *lines: dict[str, str]) -> None:
    journal.writelines(json.dumps(line) + "\n" for line in lines)
    journal.flush()


def _digest(file: IO[bytes], nbytes: int) -> str:
    """SHA-256 of the next bytes of a file, of fewer where it ends before."""
    hashed = hashlib.sha256()
    while nbytes > 0 and (data := file.read(min(nbytes, _READ))):
        hashed.update(data)
        nbytes -= len(data)
    return hashed.hexdigest()
