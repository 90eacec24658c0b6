"""What sentence-transformers writes beside an encoder's weights: how its vectors are made of what its last norm gives."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from iron_core.errors import CheckpointError, printable
from iron_lm.checkpoints.bounded_json import read_any, read_json
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.entries import Entries, shown

#: What a pooling is called there, and in `parts.pooling`.
POOLINGS = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last", "cls": "cls", "mean": "mean"}
#: Modules that a text goes through before and after: the model itself, and length 1, which every vector here has.
_PLAIN = ("Transformer", "Normalize")


@attrs.frozen
class Modules:
    """pooling: of `parts.pooling`; None where nothing says it. dense: numbers that come out of each matrix that a vector goes through
    after."""

    pooling: str | None = None
    dense: tuple[int, ...] = ()


def modules(checkpoint: Checkpoint, *, dense: bool = False) -> Modules:
    """What `modules.json` beside a checkpoint says; nothing where there is none.

    dense: does the model take dense modules? Their matrices are then tensors of the checkpoint, `dense.0.linear.weight` and so on.
    CheckpointError for a module that the model does not have, and for a pooling that there is not.
    """
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    file = folder / "modules.json"
    if not file.is_file():
        return Modules()
    listed = read_any(file)
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        raise CheckpointError(f"{file}: not a list of modules; it is damaged.")
    pooling, found = None, list[int]()
    for module in listed:
        kind = str(module.get("type")).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(_inside(file, module) / "config.json")
        elif kind == "Dense" and dense:
            found.append(_dense(checkpoint, _inside(file, module), len(found)))
        elif kind not in _PLAIN:
            legal = ", ".join((*_PLAIN, "Pooling", *(("Dense",) if dense else ())))
            raise CheckpointError(f"{file}: a module of type {printable(kind, 40)!r}; this model runs {legal}.")
    return Modules(pooling, tuple(found))


def _inside(file: Path, module: dict[str, Any]) -> Path:
    """A module's folder; it lies beside the file."""
    path = module.get("path")
    if not isinstance(path, str) or not path.isprintable() or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise CheckpointError(f"{file}: a module's path is {shown(path)}; legal: a folder beside it.")
    return file.parent / path


def _dense(checkpoint: Checkpoint, folder: Path, number: int) -> int:
    """Take a dense module's matrix among the checkpoint's tensors; how many numbers come out of it."""
    file = folder / "config.json"
    said = Entries(read_json(file), str(file))
    said.refuse_unless("bias", False)
    said.refuse_unless("use_residual", False)
    said.refuse_unless("activation_function", "torch.nn.modules.linear.Identity")
    checkpoint.tensors[f"dense.{number}.linear.weight"] = Checkpoint.open(folder).tensors["linear.weight"]
    return said.whole("out_features")


def _pooling(file: Path) -> str:
    said = read_json(file)
    modes = [key.removeprefix("pooling_mode_") for key, value in said.items() if key.startswith("pooling_mode_") and value is True]
    if "pooling_mode" in said:
        modes = [str(said["pooling_mode"])]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise CheckpointError(f"{file}: pooled by {printable(', '.join(modes), 60) or 'nothing'}; legal: one of {', '.join(POOLINGS)}.")
    return POOLINGS[modes[0]]
