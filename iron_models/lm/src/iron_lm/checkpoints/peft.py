"""LoRA adapters as PEFT writes them: a folder of adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError, printable
from iron_lm.checkpoints.bounded_json import read_json
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.low_rank import LowRank, fit, pair_of
from iron_lm.checkpoints.safetensors import SafetensorsFile
from iron_lm.checkpoints.tensors import Tensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
#: A matrix's name: its module within the model that was trained, and which of the two it is.
_KEY = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(A|B)(?:\.default)?\.weight")
#: How matrices may begin without the model's own having been changed for it.
_BEGINNINGS = (True, False, "gaussian", "eva", "orthogonal")
#: What says that more was trained than pairs of matrices, or that they are used otherwise, unless it is empty.
_EMPTY = (
    "modules_to_save", "target_parameters", "trainable_token_indices", "layer_replication", "alora_invocation_tokens", "arrow_config",
    "kasa_config", "monteclora_config",
)  # fmt: skip
#: Characters of a pattern of modules that a search for it cannot take long over.
_PATTERN, _CHOICES = re.compile(r"[\w.^$\\|()\[\]-]*"), 8


def read(path: Path) -> dict[str, LowRank]:
    """The pairs of an adapter, a folder or the .safetensors file in one, by the names of the tensors they are added to. CheckpointError
    for one that is damaged, or says what cannot run."""
    folder, file = (path, path / WEIGHTS) if path.is_dir() else (path.parent, path)
    if not file.exists():
        raise CheckpointError(f"{folder}: has no {WEIGHTS}. Legal: a folder with {CONFIG} and {WEIGHTS}, or an adapter in GGUF.")
    scale = _scales(folder / CONFIG)
    tensors = SafetensorsFile.read(file)
    found: dict[str, dict[str, Any]] = {}
    for name in (*tensors, *tensors.refused):
        match = _KEY.fullmatch(name)
        if match is None:
            raise CheckpointError(f"{file}: tensor {printable(name, 120)} is no lora_A or lora_B of a matrix; these alone run.")
        module, which = match.groups()
        own = found.setdefault(module, {})
        if which in own:
            raise CheckpointError(f"{file}: lora_{which} of {printable(module, 80)} is there twice.")
        own[which] = _tensor(tensors, name)
    fit(str(file), found)
    pairs = {}
    for module, own in found.items():
        for which in "AB":
            if which not in own:
                raise CheckpointError(f"{file}: lora_{which} of {printable(module, 80)} is missing.")
        rank = own["B"].shape[-1] if own["B"].ndim else 0
        pairs[f"{module}.weight"] = pair_of(str(file), module, own["A"], own["B"], scale(module, max(1, rank)))
    if not pairs:
        raise CheckpointError(f"{file}: holds no tensors.")
    return pairs


def _tensor(tensors: Tensors, name: str) -> Any:
    return tensors[name][2]  # of one that is refused this says why


def _scales(path: Path) -> Callable[[str, int], float]:
    """(module, rank) -> what B A is multiplied by, of an adapter_config.json. CheckpointError for what cannot run."""
    entries = Entries(read_json(path), str(path))
    raw = entries.entries
    entries.refuse_unless("peft_type", "LORA")
    entries.refuse_unless("bias", "none")
    entries.refuse_unless("init_lora_weights", *_BEGINNINGS)
    for key in raw:
        if key.startswith(("use_", "lora_bias")) and key != "use_rslora":
            entries.refuse_unless(key, False)
    for key in _EMPTY:
        if raw.get(key):
            raise CheckpointError(f"{path}: {key} is {printable(repr(raw[key]), 60)}; legal: none, for pairs of matrices alone run.")
    alpha, rank, rooted = entries.number("lora_alpha", 8.0), entries.whole("r", 8), entries.flag("use_rslora")
    ranks = {rank, *(_whole(entries, value) for value in _pattern(entries, "rank_pattern").values())}
    alphas = {key: Entries({key: value}, str(path)).number(key) for key, value in _pattern(entries, "alpha_pattern").items()}

    def scale(module: str, found: int) -> float:
        if found not in ranks:
            raise CheckpointError(f"{path}: {printable(module, 80)} has rank {found}; legal by r and rank_pattern: {sorted(ranks)}.")
        own = next((value for key, value in alphas.items() if re.fullmatch(rf"(.*\.)?({key})", module)), alpha)
        return own / (math.sqrt(found) if rooted else found)

    return scale


def _whole(entries: Entries, value: Any) -> int:
    return Entries({"rank_pattern": value}, entries.where).whole("rank_pattern")


def _pattern(entries: Entries, key: str) -> dict[str, Any]:
    """An object by patterns of modules' names. CheckpointError for one with repetitions, which a search might take for ever over."""
    found = entries.entries.get(key) or {}
    if not isinstance(found, dict):
        raise CheckpointError(f"{entries.where}: {key} is a {type(found).__name__}; legal: an object, of numbers by modules.")
    for pattern in found:
        if not _PATTERN.fullmatch(pattern) or pattern.count("|") > _CHOICES or not _compiles(pattern):
            legal = "a module's name, or a pattern without repetition"
            raise CheckpointError(f"{entries.where}: {key} has {printable(repr(pattern), 60)}; legal: {legal}.")
    return found


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
