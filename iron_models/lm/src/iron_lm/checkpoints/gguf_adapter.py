"""LoRA adapters in GGUF, as llama.cpp's convert_lora_to_gguf.py writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError, printable
from iron_lm.checkpoints.gguf import GGUFFile
from iron_lm.checkpoints.gguf_header import MAGIC
from iron_lm.checkpoints.low_rank import LowRank, fit, pair_of

_ENDS = {".lora_a": "a", ".lora_b": "b"}
_FROM = "adapter.alora.invocation_tokens"


def sniff(path: Path) -> bool:
    """Does the file begin as a GGUF does?"""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read(path: Path, checkpoint: Any) -> dict[str, LowRank]:
    """The pairs of an adapter, by the names of the tensors of a GGUF that they are added to. CheckpointError for one that is damaged, of
    another architecture than the checkpoint, or no adapter of pairs of matrices."""
    file = GGUFFile.open(path)
    said = file.metadata
    for key, legal in (("general.type", "adapter"), ("adapter.type", "lora")):
        if said.get(key) != legal:
            raise CheckpointError(f"{path}: {key} is {printable(repr(said.get(key)), 40)}; legal: {legal}.")
    own, model = said.get("general.architecture"), checkpoint.metadata.get("general.architecture")
    if own != model:
        raise CheckpointError(f"{path}: an adapter of {printable(repr(own), 40)} for a model of {printable(repr(model), 40)}.")
    if _FROM in said:
        raise CheckpointError(f"{path}: {_FROM} says that it is to add nothing before some tokens; one that always adds runs.")
    alpha = said.get("adapter.lora.alpha", 0.0)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha < 1e9:
        raise CheckpointError(f"{path}: adapter.lora.alpha is {printable(repr(alpha), 40)}; legal: a number from 0.")
    found: dict[str, dict[str, Any]] = {}
    for name in (*file.tensors, *file.tensors.refused):
        end = next((end for end in _ENDS if name.endswith(end)), None)
        if end is None:
            raise CheckpointError(f"{path}: tensor {printable(name, 80)} is no .lora_a or .lora_b; an adapter of these alone runs.")
        found.setdefault(name.removesuffix(end), {})[_ENDS[end]] = file.tensors[name][2]
    fit(str(path), found)
    pairs = {}
    for name, each in found.items():
        for which in "ab":
            if which not in each:
                raise CheckpointError(f"{path}: {printable(name, 80)}.lora_{which} is missing.")
        rank = each["b"].shape[-1]
        pairs[name] = pair_of(str(path), name, each["a"], each["b"], alpha / rank if alpha else 1.0)
    if not pairs:
        raise CheckpointError(f"{path}: holds no tensors.")
    return pairs
