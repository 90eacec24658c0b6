"""`convert`: a checkpoint of any kind that is read, written as one of those that are; or as it is, with some matrices in 4 bits."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs

from iron_core.cache.keys import digest, known_sources
from iron_core.errors import CheckpointError, IronError, PluginError, UnknownName, UsageError, printable
from iron_core.plugins import foreign
from iron_core.plugins.record import Record
from iron_core.plugins.registry import registry
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.identity import identity
from iron_lm.checkpoints.reading import reading
from iron_lm.conversion import gguf_folder, gptq_folder
from iron_lm.conversion.output import Output
from iron_lm.conversion.unfinished import JOURNAL, Unfinished
from iron_lm.text.tokenizer_files import TOKENIZER_FILES

#: By kind of checkpoint, what writes one of that kind again, with some of its matrices in 4 bits.
_ROUNDED = {"safetensors": gptq_folder, "gguf": gguf_folder}


@attrs.frozen
class Converted:
    """What was written: the folder, its format, its tensors (`kept`: of an earlier attempt that was cut short) and bytes."""

    path: str
    format: str
    tensors: int
    kept: int
    bytes: int


class Conversion:
    """`source` (a path) as a new folder `out` in a format (the entry point's name); or in the one that it has, with the matrices of some
    roles in 4 bits. CheckpointError for what cannot be read or written; UnknownName and UsageError for a format that there is not, or
    that is only read, for an `out` that is there, and for a role or a block that the model does not have.

    int4: roles, as `--profile` names parts of the model; several in one text by commas. int4_block: numbers of a row that share a scale,
    32, 64 or 128; None: as many as all rows are whole blocks of. replace: an `out` that a conversion has written goes when the new one
    is whole. reader, quantized_from, gptq_zeros: as `Checkpoint.open` has them.
    """

    def __init__(
        self,
        source: str | Path,
        out: str | Path,
        format: str | None = None,
        *,
        int4: Iterable[str] = (),
        int4_block: int | None = None,
        replace: bool = False,
        reader: str | None = None,
        quantized_from: str | None = None,
        gptq_zeros: str | None = None,
    ) -> None:
        self.out, self.replace, roles = Path(os.path.abspath(out)), replace, tuple(int4)
        if (format is None) == (not roles):
            raise UsageError(f"--format {'is missing' if format is None else 'with --int4'}. Legal: --format, or --int4, one of them.")
        if int4_block is not None and not roles:
            raise UsageError("--int4-block says how --int4 rounds, which is not asked for. Legal: both.")
        writer = None if format is None else _writer(format)
        self._check_place()
        checkpoint = Checkpoint.open(source, reader=reader, quantized_from=quantized_from, gptq_zeros=gptq_zeros)
        self.format = format or checkpoint.kind
        self.output = _rounded(checkpoint, roles, int4_block) if writer is None else _converted(writer, checkpoint)
        self._check_replaced(checkpoint.path)
        maker = _ROUNDED[checkpoint.kind].output if writer is None else writer.object
        self._unfinished = Unfinished(self.out, self.output, _key(checkpoint, maker, self.output))
        self._nbytes = 0

    def run(self) -> Converted:
        """Write it. What an attempt that was cut short has left is gone on with."""
        self._unfinished.write(self.replace, self._tell)
        return Converted(str(self.out), self.format, self._unfinished.count, self._unfinished.kept, self.output.nbytes)

    def _tell(self, nbytes: int) -> None:
        self._nbytes = nbytes

    @property
    def progress(self) -> str:
        """How far it is, for people."""
        done, count = self._unfinished.done, self._unfinished.count
        return f"{done} of {count} tensors, {100 * self._nbytes // max(self.output.nbytes, 1)} %"

    @property
    def left_over(self) -> str:
        """What an attempt that was cut short has left, for people; "" where it left nothing."""
        return self._unfinished.left_over.strip()

    def _check_place(self) -> None:
        """UsageError for a place where nothing can be put."""
        shown, folder = printable(self.out), printable(self.out.parent)
        if not self.out.name or not os.path.isdir(self.out.parent):
            raise UsageError(f"OUT={shown}: {folder} is no folder; legal: a new name in one that is there.")
        if not os.path.lexists(self.out):
            return
        if not self.replace:
            raise UsageError(f"OUT={shown} is there already; legal: a new name, or --force, which replaces it.")
        if self.out.is_symlink() or not self.out.is_dir():
            raise UsageError(f"OUT={shown} is no folder, which --force would replace; legal: a new name.")

    def _check_replaced(self, source: Path) -> None:
        """UsageError for a folder that holds what no conversion writes, or what is converted."""
        if not os.path.isdir(self.out):  # Path.is_dir() raises for a name that is too long
            return
        shown = printable(self.out)
        if Path(os.path.realpath(source)).is_relative_to(os.path.realpath(self.out)):
            raise UsageError(f"OUT={shown} holds what is converted; legal: a new name.")
        # The journal is of one that was killed when all the rest was there.
        written = {*self.output.files, *self.output.names, *TOKENIZER_FILES, JOURNAL}
        others = sorted(path.name for path in self.out.iterdir() if path.name not in written or not path.is_file())
        if others:
            other = printable(others[0], 60)
            raise UsageError(f"OUT={shown} holds {other}, which no conversion writes; --force leaves it alone. Legal: a new name.")


def _writer(format: str) -> Record:
    """The reader of this name, which writes too."""
    found = registry().loaded("checkpoints", format)
    if found is None:
        raise UnknownName(f"--format {printable(format, 40)}: no such kind of checkpoint. {_legal()}")
    if not _writes(found.object):
        raise UsageError(f"--format {format} is only read. {_legal()}")
    return found


def _rounded(checkpoint: Checkpoint, roles: Iterable[str], block: int | None) -> Output:
    """A checkpoint again, the matrices of these roles in 4 bits; CheckpointError for a kind that is not written so."""
    if checkpoint.kind not in _ROUNDED:
        raise CheckpointError(f"{checkpoint.path}: --int4 of {checkpoint.kind} is not written. Legal: {', '.join(_ROUNDED)}.")
    with reading(checkpoint.path):
        return _ROUNDED[checkpoint.kind].output(checkpoint, roles, block)  # type: ignore[attr-defined, no-any-return]


def _converted(writer: Record, checkpoint: Checkpoint) -> Output:
    """What a reader makes of a checkpoint; PluginError, which names it, where somebody else's fails."""
    where = f"reader `{writer.name}` of {writer.owner}: its converted()"
    try:
        with foreign.guarded():
            output = writer.object.converted(checkpoint)
    except foreign.Raised as raised:
        if not writer.own and not isinstance(raised.error, IronError):
            raise PluginError(f"{where} raised {raised}.") from raised.error
        with reading(checkpoint.path):
            raise raised.error from None
    if not isinstance(output, Output):
        raise PluginError(f"{where} gave {foreign.kind_of(output)}; legal: an iron_lm.conversion.output.Output.")
    return output


def _writes(reader: Any) -> bool:
    return callable(getattr(reader, "converted", None))


def _legal() -> str:
    """Which formats are written, of those that can be loaded."""
    found = []
    for name in registry().names("checkpoints"):
        try:
            if _writes(registry().load("checkpoints", name)):
                found.append(name)
        except PluginError:
            continue
    return f"Legal: {', '.join(found)}." if found else "No installed distribution has one that is written; iron-q4nx has q4nx."


def _key(checkpoint: Checkpoint, writer: Any, output: Output) -> str:
    """Digest of all that decides the bytes: what is read, what is written, and by which sources; where these are not known,
    of this attempt alone."""
    read = identity(checkpoint)
    packages = dict.fromkeys(["iron_core", "iron_lm", str(writer.__module__).partition(".")[0], *read.packages])
    pieces = [(one.name, one.header, [(piece.name, piece.nbytes) for piece in one.pieces]) for one in output.containers]
    written = pieces, sorted(output.files.items())
    return digest(known_sources(*packages) or uuid4().hex, read.digest, written)
