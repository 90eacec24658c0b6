"""A checkpoint in Hugging Face's layout: one file, several, or an index of them, with config.json beside."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.bounded_json import read_json
from iron_lm.checkpoints.tensors import Tensors

#: How files of a checkpoint in several are named; of ten thousand there is none.
_PART = re.compile(r"(.+)-\d{5}-of-(0\d{4})(\.\w+)")


class HubFiles(ABC):
    """An open checkpoint: a file, one of several parts, an index, or the folder with any of these.

    `tensors`: name -> (shape, Format, array over the map), of all its files. `metadata`: config.json, if there is one, under
    "config". `described`: what was read; `files`: from where. A subclass reads one kind of file.
    """

    kind: ClassVar[str]
    label: ClassVar[str]  # the kind, for people
    pattern: ClassVar[str]  # a folder's files
    index: ClassVar[str]

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        folder = self.path if self.path.is_dir() else self.path.parent
        index = folder / self.index if self.path.is_dir() else self.path
        self.tensors = Tensors()
        if index.name.endswith(".index.json") and index.exists():
            self._indexed(index)
        else:
            self._unindexed()
        self.metadata: dict[str, Any] = {}
        config = folder / "config.json"
        if config.exists():
            self.metadata["config"] = read_json(config)

    @classmethod
    def held(cls, folder: Path) -> bool:
        """Has a folder an index of such files, or any of them?"""
        return (folder / cls.index).exists() or any(folder.glob(cls.pattern))

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map its files and read where their tensors are; CheckpointError if one is damaged."""
        return cls(path)

    @staticmethod
    @abstractmethod
    def read(path: Path) -> Tensors:
        """The tensors of one file; CheckpointError if it is damaged."""

    def _indexed(self, index: Path) -> None:
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict):
            raise CheckpointError(f"{index}: no weight_map.")
        files: dict[str, set[str]] = {}
        for name, file in places.items():
            if not isinstance(file, str) or Path(file).name != file or not file.isprintable():
                raise CheckpointError(f"{index}: tensor {name} is in {str(file)[:80]!r}; legal: the name of a file beside the index.")
            if file not in files:
                tensors = self.read(index.parent / file)
                self.tensors.join(tensors, index.parent / file)
                files[file] = tensors.names
            if name not in files[file]:
                raise CheckpointError(f"{index}: tensor {name} is not in {file}, where the index says it is.")
        self.files = [index.parent / file for file in files]
        self.described = f"{self.label} index, {len(files)} file{'s' if len(files) != 1 else ''}"

    def _unindexed(self) -> None:
        self.files = files = self._files()
        for file in files:
            self.tensors.join(self.read(file), file)
        form = "folder" if self.path.is_dir() else "file"
        self.described = f"{self.label}, {len(files)} files" if len(files) > 1 else f"{self.label} {form}"

    def _files(self) -> list[Path]:
        """The one file, or all parts of one; CheckpointError if a folder has others besides."""
        found = sorted(self.path.glob(self.pattern)) if self.path.is_dir() else [self.path]
        part = _PART.fullmatch(found[0].name) if found else None
        if part is not None:
            parts = [found[0].with_name(f"{part[1]}-{i:05d}-of-{part[2]}{part[3]}") for i in range(1, int(part[2]) + 1)]
            if set(found) <= set(parts):
                return parts
        if len(found) == 1:
            return found
        shown = ", ".join(file.name for file in found[:4])
        raise CheckpointError(
            f"{self.path}: holds {len(found)} {self.label} files ({shown}) and no {self.index}; name one of them, or fetch the index."
        )
