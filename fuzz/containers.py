"""Headers and tensors in memory, without a file: a million of them take minutes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import seeds
from fuzz.mutation import Mutator
from fuzz.rule import Fault, damaged, told
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.mapped import MappedFile
from iron_lm.checkpoints.safetensors import tensors_of
from iron_lm.checkpoints.safetensors_header import read_header
from iron_q4nx import reader


def q4nx_in_memory(mutator: Mutator, folder: Path) -> str:
    """A header and chunks of FastFlowLM, without a file; a million of them take minutes."""
    model, rng = seeds.q4nx_model(mutator.rng), mutator.rng
    if rng.random() < 0.3:
        model["data"] = mutator.raw(model["data"])
    data = damaged(mutator, model, seeds.q4nx_bytes, 0.2)
    config = mutator.tree(seeds.Q4NX_CONFIG) if rng.random() < 0.1 else seeds.Q4NX_CONFIG
    file, said = InMemory(folder / "model.q4nx", data), rng.choice(("Q4_1", "Q4_0", "minima", None))
    return _in_memory(file, lambda: reader.tensors_of(file, read_header(file, lenient=True), config, said))


def safetensors_in_memory(mutator: Mutator, folder: Path) -> str:
    """A safetensors file without a file."""
    file = InMemory(folder / "model.safetensors", damaged(mutator, seeds.safetensors_model(), seeds.safetensors_bytes))
    return _in_memory(file, lambda: tensors_of(file))


class InMemory(MappedFile):
    """What is read of a file, of bytes."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.size = path, len(data)
        self._map: Any = data
        self.bytes = np.frombuffer(data, np.uint8)


def _in_memory(file: InMemory, read: Callable[[], Any]) -> str:
    try:
        matrices(read())
    except Fault:
        raise
    except Exception as error:
        return told(error, [file.path.name])
    return "taken"


def matrices(tensors: Any) -> None:
    """Every tensor has the numbers of its shape; of one that is not read there is a reason."""
    for reason in tensors.refused.values():
        told(CheckpointError(reason), ["model."])
    for name, (shape, _, array) in tensors.items():
        numbers = array.dequantize() if hasattr(array, "dequantize") else np.asarray(array)
        if numbers.shape != tuple(shape):
            raise Fault(f"{name[:40]} is {numbers.shape}, not {shape}")
