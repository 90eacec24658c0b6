"""A file of vectors that is being written, under a name of its own until it is whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from iron_core.errors import CheckpointError, UsageError, printable

try:
    import fcntl
except ImportError:  # a platform without it: nobody is kept from writing the same file twice
    fcntl = None  # type: ignore[assignment]


class UnfinishedVectors:
    """`OUT.partial`, the file that becomes OUT when it is whole, and `OUT.partial.journal`, which names what is made (`key`) and then,
    of each batch of rows that is there, the SHA-256 of its bytes.

    Who goes on reads what is there again and keeps the batches up to the first that differs, so a row is neither missing nor made
    of something else, whenever the process before was killed.
    """

    def __init__(self, out: Path, header: bytes, width: int, batches: Sequence[np.ndarray], key: str) -> None:
        """batches: of each batch the numbers of its rows."""
        self.out, self.header, self.width, self.batches, self.key = out, header, width, batches, key
        self.partial = out.with_name(f"{out.name}.partial")
        self.journal = out.with_name(f"{out.name}.partial.journal")
        self.done = 0  # rows that are there
        self.kept = 0  # of these, those of an earlier attempt

    @property
    def left_over(self) -> str:
        """What an attempt that ended left for the next, for people; nothing where it left nothing."""
        if not self.done or not self.partial.is_file():
            return ""
        rows = sum(map(len, self.batches))
        return f"{printable(self.partial)} has {self.done} of {rows} vectors; the same command goes on from there."

    def write(self, made: Callable[[np.ndarray], np.ndarray], replace: bool) -> None:
        """Write the rows that are not there yet, and put the file in its place. made: float32 vectors of rows of these numbers.

        replace: start anew where a file of another making is in the way. UsageError for such a one without it, and where another
        process is at it; CheckpointError where something cannot be written.
        """
        try:
            with os.fdopen(os.open(self.partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file, self._locked(file):
                lines = self._lines(replace)
                batches = self._same(file, lines)
                self.kept = self.done = sum(map(len, self.batches[:batches]))
                if not batches:
                    file.truncate(0)
                    os.pwrite(file.fileno(), self.header, 0)
                with open(self.journal, "w", encoding="utf-8") as journal:
                    _note(journal, {"key": self.key}, *lines[:batches])
                    for rows in self.batches[batches:]:
                        _note(journal, {"sha256": self._put(file, rows, made(rows))})
                        self.done += len(rows)
                os.rename(self.partial, self.out)
                self.journal.unlink(missing_ok=True)
        except OSError as error:
            why = str(error.strerror or error).removesuffix(".")
            raise CheckpointError(f"{printable(error.filename or self.partial)}: {why}. {self.left_over}".rstrip()) from None

    @contextlib.contextmanager
    def _locked(self, file: IO[bytes]) -> Iterator[None]:
        """The file this process's alone; the system drops the lock when the process ends."""
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{printable(self.partial)}: another process is writing it.") from None
            except OSError:
                pass  # a file system without locks
        if not self.partial.exists() or self.partial.stat().st_ino != os.fstat(file.fileno()).st_ino:
            raise UsageError(f"{printable(self.out)}: another process has just written it.")
        yield

    def _lines(self, replace: bool) -> list[dict[str, str]]:
        """What an earlier attempt at the same noted of each batch; nothing where there was none."""
        try:
            text = self.journal.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return []
        found = []
        for line in text.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # it was killed while it wrote this one
                break
        if not found or found[0] == {"key": self.key}:
            return found[1:]
        if replace:
            return []
        legal = "another --out, or --force, to start anew"
        raise UsageError(f"{printable(self.partial)} is of other texts, or of another model; legal: {legal}.")

    def _same(self, file: IO[bytes], lines: list[dict[str, str]]) -> int:
        """How many batches the file has that are as noted."""
        if os.pread(file.fileno(), len(self.header), 0) != self.header:
            return 0
        count = 0
        for rows, line in zip(self.batches, lines, strict=False):
            if line != {"sha256": _digest(os.pread(file.fileno(), 4 * self.width, self._at(row)) for row in rows)}:
                break
            count += 1
        return count

    def _put(self, file: IO[bytes], rows: np.ndarray, vectors: np.ndarray) -> str:
        """Write a batch, down to the disk; the digest of its bytes."""
        parts = [np.ascontiguousarray(vector, "<f4").tobytes() for vector in vectors]
        for row, part in zip(rows, parts, strict=True):
            if os.pwrite(file.fileno(), part, self._at(row)) != len(part):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.partial))
        os.fsync(file.fileno())
        return _digest(parts)

    def _at(self, row: int) -> int:
        return len(self.header) + 4 * self.width * int(row)


def _note(journal: IO[str], *lines: dict[str, str]) -> None:
    journal.writelines(json.dumps(line) + "\n" for line in lines)
    journal.flush()
    os.fsync(journal.fileno())


def _digest(parts: Iterator[bytes] | list[bytes]) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()
