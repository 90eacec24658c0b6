"""`iron-run PATH`: of every family's own files the family is found."""

from __future__ import annotations

from typing import Any

from iron_lm import families
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.recognise import architecture


def test_its_files_are_found_to_be_its(family: Any) -> None:
    """A folder, and a GGUF; one that llama.cpp calls by another family's name is that one's."""
    assert families.of(Checkpoint.open(family.write())) is family.family
    gguf = Checkpoint.open(family.gguf())
    assert architecture(gguf) in families.of(gguf).architectures and (architecture(gguf) == "llama" or families.of(gguf) is family.family)
