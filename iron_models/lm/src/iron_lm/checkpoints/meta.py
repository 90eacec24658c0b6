"""Meta's original layout: params.json beside consolidated.00.pth, consolidated.01.pth, ..."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.bounded_json import read_json
from iron_lm.checkpoints.state_dict import state_dict
from iron_lm.checkpoints.tensors import Tensors
from iron_lm.checkpoints.widening import Merged

PARAMS = "params.json"
_SHARD = re.compile(r"consolidated\.(\d\d)\.pth\Z")
_MOST_SHARDS = 64
#: Which axis each shard has a part of, by the last words of a tensor's name; others are the same in every shard.
_SPLIT = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1}
#: What `use_scaled_rope` divides low frequencies by in Meta's own program, where params.json does not say it.
SCALED = 8.0


class MetaFolder:
    """An open checkpoint in Meta's layout: the folder, or any of its files.

    `tensors`: name -> (shape, Format, array over the map, or Merged where shards have parts). `metadata`: params.json,
    under "params".
    """

    kind = "meta"

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.path = path if path.is_dir() else path.parent
        if not (self.path / PARAMS).exists():
            raise CheckpointError(f"{self.path}: no {PARAMS} beside the .pth files; the model's shape is read from there.")
        self.metadata: dict[str, Any] = {"params": read_json(self.path / PARAMS)}
        shards = _shards(self.path)
        parts = [state_dict(self.path / name) for name in shards]
        self.described = f"Meta's layout, {len(shards)} shard{'s' if len(shards) > 1 else ''}"
        params = self.metadata["params"]
        if params.get("use_scaled_rope") is True and "rope_scaling_factor" not in params:
            self.described += f", rotary embedding scaled by {SCALED:g} as Meta's program has it"
        self.tensors = parts[0] if len(parts) == 1 else self._merged(shards, parts)

    def _merged(self, shards: list[str], parts: list[Tensors]) -> Tensors:
        found = Tensors()
        for shard, part in zip(shards, parts, strict=True):
            odd = part.names ^ parts[0].names
            if odd:
                raise CheckpointError(f"{self.path}: tensor {min(odd)} is in one of {shards[0]} and {shard} and not in the other.")
            found.refused.update(part.refused)
        for name, (shape, format, first) in parts[0].items():
            if name in found.refused:
                continue
            others = [part[name] for part in parts]
            if any((s, f) != (shape, format) for s, f, _ in others):
                raise CheckpointError(f"{self.path}: tensor {name} differs in shape or dtype between the shards.")
            axis = self._axis(name, shape)
            if axis is None:
                found[name] = (shape, format, first)
            else:
                merged = Merged([array for _, _, array in others], axis)
                found[name] = (merged.shape, format, merged)
        return found

    def _axis(self, name: str, shape: tuple[int, ...]) -> int | None:
        """The axis shards have parts of, or None where each has the whole."""
        word = name.removesuffix(".weight").rpartition(".")[2]
        if word == "tok_embeddings":  # by columns up to Llama 2, by rows since
            return 0 if shape[-1:] == (self.metadata["params"].get("dim"),) else 1
        return _SPLIT.get(word) if len(shape) == 2 else None

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it a folder with params.json and consolidated.*.pth, or one of those?"""
        path = Path(path)
        if path.is_dir():
            return (path / PARAMS).exists() and any(path.glob("consolidated.*.pth"))
        return bool(_SHARD.match(path.name)) or (path.name == PARAMS and any(path.parent.glob("consolidated.*.pth")))

    @classmethod
    def open(cls, path: str | Path) -> MetaFolder:
        """Map the files and read where their tensors are; CheckpointError if one is damaged. Nothing in them is run."""
        return cls(path)


def _shards(folder: Path) -> list[str]:
    """The shards' names in order; CheckpointError where one between is missing."""
    found = sorted(p.name for p in folder.glob("consolidated.*.pth") if _SHARD.match(p.name))
    wanted = [f"consolidated.{i:02d}.pth" for i in range(len(found))]
    if found != wanted or not 1 <= len(found) <= _MOST_SHARDS:
        missing = next((w for w in wanted if w not in found), "consolidated.00.pth")
        raise CheckpointError(f"{folder}: {missing} is missing beside {', '.join(found[:4]) or PARAMS}.")
    return found
